"""Settings of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dubito.arrays import as_share
from dubito.errors import BadValueError


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """What the service allows, and how it reviews.

    `audit_share` of all rows are drawn into review whatever their decision. `is_blind` hides the
    model's opinion from readers. Without `retention_days` everything is kept.

    >>> Settings(audit_share=0.05).audit_share
    0.05
    """

    audit_share: float = 0.01
    is_blind: bool = False
    retention_days: float | None = None
    lease_seconds: float = 600.0
    most_bytes: int = 32 * 1024 * 1024
    max_samples: int = 50_000
    most_columns: int = 10_000

    def __post_init__(self) -> None:
        as_share(self.audit_share, "audit_share", "Settings")
        for name in ("lease_seconds", "most_bytes", "max_samples", "most_columns"):
            _require_above_0(name, getattr(self, name))
        if self.retention_days is not None:
            _require_above_0("retention_days", self.retention_days)


def _require_above_0(name: str, value: float) -> None:
    """Raise unless a setting is a number above 0."""
    if not 0 < value < float("inf"):
        raise BadValueError(name, "Settings", "a number above 0", f"{value!r}", f"{name}=30")
