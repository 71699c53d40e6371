"""Costs that grow with a column, for tests: expressions from two tables of numbers."""

from typing import Any

import numpy as np


def growing(base: Any, rate: Any, column: str = "amount") -> list[list[str]]:
    """Return the cells `base + rate * column`."""
    rows = zip(np.array(base).tolist(), np.array(rate).tolist(), strict=True)
    return [
        [f"{one!r} + {by!r} * {column}" for one, by in zip(*pair, strict=True)] for pair in rows
    ]
