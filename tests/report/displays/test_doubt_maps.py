"""Maps of doubt show what they were given, on one scale."""

import numpy as np
import pytest

from dubito.errors import BadValueError
from dubito.report import DoubtMapDisplay

rng = np.random.default_rng(0)
IMAGE, NOISE, IGNORANCE = rng.random((6, 8)), rng.random((6, 8)), 2 * rng.random((6, 8))


def test_maps_are_drawn_as_they_are_on_one_scale() -> None:
    display = DoubtMapDisplay.from_maps(IMAGE, NOISE, IGNORANCE)
    drawn = [ax.get_images()[0] for ax in display.axes_]
    for picture, values in zip(drawn, (IMAGE, NOISE, IGNORANCE), strict=True):
        np.testing.assert_array_equal(picture.get_array(), values)
    assert drawn[1].get_clim() == drawn[2].get_clim() == (0, IGNORANCE.max())
    titles = [ax.get_title() for ax in display.axes_]
    assert titles[1:] == ["aleatoric: noise in the data", "epistemic: ignorance of the model"]


def test_maps_of_another_image_are_refused() -> None:
    with pytest.raises(BadValueError, match=r"`epistemic` of DoubtMapDisplay must be of \(6, 8\)"):
        DoubtMapDisplay.from_maps(IMAGE, NOISE, IGNORANCE[:3])


def test_colours_are_taken_and_no_doubt_at_all_is_drawn() -> None:
    nothing = np.zeros((6, 8))
    display = DoubtMapDisplay.from_maps(rng.random((6, 8, 3)), nothing, nothing)
    assert display.axes_[1].get_images()[0].get_clim() == (0, 1e-12)
