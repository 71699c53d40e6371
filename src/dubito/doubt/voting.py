"""One class out of several views of the same row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous
from dubito.doubt.members import as_members, fill_rows
from dubito.errors import BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.members import mean_tops, tally_rows, top_rows
from dubito.outputs import Members

__all__ = ["Vote", "vote"]

CALLER = "vote"
WAYS = ("mode", "mean", "confidence", "certainty")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Vote:
    """The class (its column's number) that won in each row, and its share of all weight there."""

    class_: IntArray
    weight: FloatArray


def vote(
    members: Any,
    by: Literal["mode", "mean", "confidence", "certainty"] = "mode",
    threshold: float | None = None,
) -> Vote:
    """Return the class that several views (passes) vote for, and the share of the weight it got.

    Each view votes for its top class with weight 1 ("mode"), its top probability ("confidence") or
    its `Members.certainty` ("certainty"); with a `threshold` with weight 1 where that value reaches
    it and 0 where not. Where no view has weight it is the mode. "mean" gives the top class of the
    mean probability. Of a tie, the first class wins.

    >>> views = Members([[[0.6, 0.4]], [[0.6, 0.4]], [[0.0, 1.0]]])
    >>> vote(views).class_.tolist(), vote(views, by="mean").class_.tolist()
    ([0], [1])
    """
    if by not in WAYS:
        rule, fix = "'mode', 'mean', 'confidence' or 'certainty'", "by='mode'"
        raise BadValueError("by", CALLER, rule, repr(by), fix)
    limit = as_threshold(threshold, by)
    wrapped, shape = as_members(members, CALLER)
    chosen, share = np.empty(wrapped.n_rows, np.int64), np.empty(wrapped.n_rows)
    if by == "mean":
        fill_rows(mean_tops, wrapped.array, (chosen, share))
    else:
        votes, confidence = top_votes(wrapped)
        weights = weights_of(wrapped, confidence, by, limit)
        tally_rows(contiguous(votes), contiguous(weights), wrapped.n_classes, chosen, share)
    return Vote(chosen.reshape(shape), share.reshape(shape))


def as_threshold(threshold: Any, by: str) -> float | None:
    """Return the value that a view must reach to count, or None."""
    if threshold is None:
        return None
    if by in ("mode", "mean"):
        fix = "by='confidence' or by='certainty'"
        raise BadValueError("threshold", CALLER, f"None by {by!r}", repr(threshold), fix)
    is_number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not (is_number and np.isfinite(threshold)):
        rule = "a finite number, or None"
        raise BadValueError("threshold", CALLER, rule, repr(threshold), "threshold=0.5")
    return float(threshold)


def top_votes(members: Members) -> tuple[IntArray, FloatArray]:
    """Return each view's top class and its probability, passes x rows."""
    n_passes, n_rows, n_classes = members.array.shape
    votes = np.empty((n_passes, n_rows), np.int64)
    confidence = np.empty((n_passes, n_rows), members.array.dtype)

    def fill(item: tuple[int, slice]) -> None:
        i, rows = item
        top_rows(contiguous(members.array[i, rows]), votes[i, rows], confidence[i, rows])

    blocks = row_blocks(n_rows, n_classes)
    for _ in map_in_order(fill, [(i, rows) for i in range(n_passes) for rows in blocks]):
        pass
    return votes, confidence


def weights_of(
    members: Members, confidence: FloatArray, by: str, threshold: float | None
) -> FloatArray:
    """Return what each view's vote weighs, passes x rows; no row is without weight."""
    weights = np.ones(confidence.shape)
    if by != "mode":
        values = confidence if by == "confidence" else certainty_of(members)
        if threshold is None:
            weights = values.astype(np.float64)
            highest = weights.max(axis=0)
            np.divide(weights, highest, out=weights, where=highest > 0)  # sums cannot overflow
        else:
            # NumPy rounds the threshold as the values were: 0.7 in float32 reaches 0.7.
            weights = (values >= threshold).astype(np.float64)
    weights[:, ~weights.any(axis=0)] = 1.0
    return weights


def certainty_of(members: Members) -> FloatArray:
    """Return what each view says of its own trust, 0 or above."""
    if members.certainty is None:
        rule, fix = "given to vote by 'certainty'", "Members(array, certainty=...)"
        raise BadValueError("members.certainty", CALLER, rule, "None", fix)
    is_negative = members.certainty < 0
    if is_negative.any():
        view, row = (int(place) for place in np.argwhere(is_negative)[0])
        got, fix = f"{members.certainty[view, row]} of pass {view}", "np.exp(-log_variance)"
        raise BadValueError("members.certainty", CALLER, "0 or above", got, fix, row)
    return members.certainty
