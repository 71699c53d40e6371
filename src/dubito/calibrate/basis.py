"""The numbers f(x) of a row that a calibration map is linear in, x its log probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.cross_validation import labeled_only
from dubito.calibrate.inputs import FLOOR, as_class_outputs, log_probabilities
from dubito.data.shards import Shards, sample_rows
from dubito.errors import BadValueError
from dubito.kernels.affine import bump_rows
from dubito.outputs import Logits, Probabilities

BASES = ("linear", "spline", "rbf")
BENDS = (-6.0, -3.0, -1.0)  # log probabilities at which a map may bend: of 0.2 %, 5 % and 37 %
N_BUMPS = 200
WIDTH = 0.2  # of a bump, as part of the median distance between two
FAR = -8.0  # log probabilities below are alike to bumps
LOWEST = float(np.log(FLOOR))  # log probability, of logits as of probabilities
MOST_ROWS = 20_000  # that bumps are chosen from
STRIDE = 12345.678901  # large and crooked, so that what is left of its multiples is as if random


@final
@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What f(x) is made of, x taken at the inverse temperature `beta`.

    Straight maps read x alone; bent ones also the probabilities and max(x - c, 0) for each bend c;
    local ones also a bump around each of some known rows.
    """

    beta: float
    kind: str = "linear"
    centers: FloatArray | None = None
    width: float = 1.0

    def n_parts(self) -> int:
        """Return how many numbers f has for each class, bumps apart."""
        return 1 if self.kind == "linear" else 2 + len(BENDS)

    def numbers(self, outputs: Logits | Probabilities, precision: str = "float64") -> FloatArray:
        """Return f(x) of some rows."""
        x = log_probabilities(outputs, self.beta, precision)
        np.maximum(x, LOWEST, out=x)
        if self.kind == "linear":
            return x
        parts = [x, np.exp(x), *(np.maximum(x - bend, 0) for bend in BENDS)]
        if self.centers is not None:
            parts.append(np.empty((len(x), len(self.centers)), precision))
            bump_rows(contiguous(np.maximum(x, FAR)), self.centers, self.width, parts[-1])
        return np.column_stack(parts)


def as_basis_name(name: str, caller: str) -> str:
    """Return the name of a basis."""
    if name not in BASES:
        rule = f"one of {', '.join(map(repr, BASES))}"
        raise BadValueError("basis", caller, rule, repr(name), "basis='spline'")
    return name


def bumps_of(shards: Shards, beta: float) -> tuple[FloatArray, float]:
    """Return the rows that bumps stand at, and how wide these are.

    Rows are chosen by what is left of a multiple of their numbers: as good as drawn, and the same
    ones whatever the order of rows or classes is, however often a row came, and in either precision
    but for few.
    """
    batch = labeled_only(sample_rows(shards, MOST_ROWS))
    outputs = as_class_outputs(batch.outputs, "a calibrator")
    rounded = np.round(Basis(1.0).numbers(outputs), 6)
    distinct, firsts = np.unique(rounded, axis=0, return_index=True)
    # The finer ones are for rows so close that the coarser are the same.
    left, finer = _remainders(np.round(distinct, 3)), _remainders(distinct)
    last = np.lexsort((finer, left))[:N_BUMPS][-1]
    is_chosen = (left < left[last]) | ((left == left[last]) & (finer <= finer[last]))
    chosen = outputs.take(firsts[is_chosen])
    centers = contiguous(np.maximum(Basis(beta).numbers(chosen), FAR))
    apart = np.sqrt(np.square(centers[:, np.newaxis] - centers).sum(axis=2))
    is_apart = apart > 0
    return centers, WIDTH * float(np.median(apart[is_apart])) if is_apart.any() else 1.0


def _remainders(rows: FloatArray) -> FloatArray:
    """Return a number from 0 to 1 for each row, which tells nothing of the row."""
    left = np.mod(np.mod(STRIDE * rows, 1).sum(axis=1), 1)
    return np.asarray(np.round(left, 9))  # sums in another order change last digits
