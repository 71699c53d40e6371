"""Serve a policy over HTTP: decisions, a review queue, and monitoring as labels arrive.

Requires the optional dependencies of `pip install 'dubito[serve]'`.
"""

from importlib import import_module

from dubito import errors

try:
    for name in (
        "alembic", "fastapi", "itsdangerous", "prometheus_client", "sqlalchemy", "uvicorn",
    ):  # fmt: skip
        import_module(name)
except ImportError as error:
    raise errors.MissingExtraError("The service (dubito serve, dubito token)", "serve") from error
