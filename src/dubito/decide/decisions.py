"""What a policy decided: an action a row, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray
from dubito.outputs import ClassName

__all__ = ["ASKING_IS_CHEAPER", "Decisions", "LEAST_COST", "REASONS", "RISK_BOUND", "STRANGE"]

REASONS = ("least expected cost", "asking costs less", "risk bound", "strange input")
LEAST_COST, ASKING_IS_CHEAPER, RISK_BOUND, STRANGE = range(4)
COLUMNS = ("action", "class_", "probability", "expected_cost", "reason", "worth")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """An action each row, by number, and what speaks for it.

    `class_` is the most probable class and `probability` its honest probability; `expected_cost` is
    that of the action. `reason` is a number of `REASONS`. `worth` is what knowing the truth would
    save, on average, over the best action without asking; of a strange input as if nothing but
    class frequencies were known. It is 0 for rows that nobody is asked about.
    """

    action: IntArray
    class_: IntArray
    probability: FloatArray
    expected_cost: FloatArray
    reason: IntArray
    worth: FloatArray
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...]
    reject: int | None

    def __len__(self) -> int:
        return self.action.size

    @property
    def is_rejected(self) -> NDArray[np.bool_]:
        """Which rows are handed over to someone."""
        return np.asarray(self.action == (-1 if self.reject is None else self.reject))

    @property
    def review_order(self) -> IntArray:
        """The numbers of rows that are handed over, those first where a look is worth most."""
        rows = np.flatnonzero(self.is_rejected)
        return np.asarray(rows[np.argsort(-self.worth[rows], kind="stable")])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as columns with names for numbers, as a table takes them."""
        return {
            "action": np.array(self.actions)[self.action],
            "class": np.array(self.classes)[self.class_],
            "probability": self.probability,
            "expected_cost": self.expected_cost,
            "reason": np.array(REASONS)[self.reason],
            "worth": self.worth,
        }

    def __str__(self) -> str:
        shares = np.bincount(self.action, minlength=len(self.actions)) / max(len(self), 1)
        taken = ", ".join(
            f"{name} {share:.1%}" for name, share in zip(self.actions, shares, strict=True)
        )
        whys = np.bincount(self.reason, minlength=len(REASONS))
        asked = ", ".join(
            f"{name} {count:,}"
            for name, count in zip(REASONS[1:], whys[1:], strict=True)
            if count > 0
        )
        text = f"{len(self):,} rows: {taken}."
        return f"{text} Handed over because of: {asked}." if asked else text

    @classmethod
    def joined(cls, parts: Iterable[Decisions], n_rows: int) -> Decisions:
        """Return decisions of several blocks of rows as one, each written down as it comes."""
        stream = iter(parts)
        first = next(stream)
        columns: dict[str, Any] = {
            name: np.empty(n_rows, getattr(first, name).dtype) for name in COLUMNS
        }
        low = 0
        for part in chain([first], stream):
            for name, column in columns.items():
                column[low : low + len(part)] = getattr(part, name)
            low += len(part)
        return replace(first, **columns)
