"""How property tests run: no example is timed, as the first one may compile kernels."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
