"""Decisions over HTTP, a queue for what was rejected, and calibration watched as truth arrives.

Needs FastAPI, SQLAlchemy and a few more, `pip install 'dubito[serve]'`.
"""

from importlib import import_module

from dubito import errors

try:
    for name in ("alembic", "fastapi", "sqlalchemy", "uvicorn"):
        import_module(name)
except ImportError as error:
    raise errors.MissingExtraError("dubito serve", "serve") from error
