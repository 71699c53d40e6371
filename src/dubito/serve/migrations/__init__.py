"""Alembic migrations: one module per schema version, applied in order at startup."""
