"""Several members or stochastic passes per row: aleatoric and epistemic uncertainty, and votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_array, as_floats, contiguous
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.members import entropy_parts, mean_tops, tally_rows, top_rows, variance_parts
from dubito.outputs import BaseOutputs, Members, Normal, Samples

KERNELS = {"entropy": entropy_parts, "variance": variance_parts}
CALLER = "decompose_uncertainty"


@final
@dataclass(frozen=True, slots=True, eq=False)
class UncertaintyDecomposition:
    """Doubt in two parts that sum to the total, one number a row, none below 0.

    `aleatoric` is noise in the data, which more data of the kind does not lower. `epistemic` is
    what the passes disagree about: what the model does not know.
    """

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


def decompose_uncertainty(
    members: Any, by: Literal["entropy", "variance"] | None = None
) -> UncertaintyDecomposition:
    """Return the doubt of several passes, split into noise in the data and ignorance of the model.

    By "entropy" (nats; the default for classes) the epistemic part is the mutual information of
    label and pass, by "variance" the variance of the passes' probabilities. `members` are
    `Members`, or plain probabilities, passes x rows x classes; of maps, passes x images x height x
    width x classes, it is one number a pixel. A list of `Normal` (or `Samples`) is split by
    "variance" only, one number a row and target, in the square of the target's unit. Depeweg et
    al., "Decomposition of uncertainty in Bayesian deep learning", 2018.

    >>> doubt = decompose_uncertainty(Members([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]))
    >>> doubt.aleatoric.round(3).tolist(), doubt.epistemic.round(3).tolist()
    ([0.0, 0.693], [0.693, 0.0])
    """
    if by is not None and by not in tuple(KERNELS):
        rule, fix = "'entropy' or 'variance'", "by='entropy'"
        raise BadValueError("by", CALLER, rule, repr(by), fix)
    numbers = _as_regressions(members)
    if numbers is not None:
        if by == "entropy":
            rule = "'variance' for Normal or Samples"
            raise BadValueError("by", CALLER, rule, "'entropy'", "by='variance'")
        return _split_variance(numbers)
    wrapped, shape = _as_members(members, CALLER)
    if wrapped.n_passes < 2:
        raise _too_few_passes(wrapped.n_passes)
    parts = np.empty((3, wrapped.n_rows))
    _fill_rows(KERNELS[by or "entropy"], wrapped.array, tuple(parts))
    return UncertaintyDecomposition(*parts.reshape(3, *shape))


def _as_members(members: Any, caller: str) -> tuple[Members, tuple[int, ...]]:
    """Return members, and the shape of what is one number a row: more than one axis for maps."""
    if isinstance(members, BaseOutputs):
        if not isinstance(members, Members):
            rule, fix = "Members, or an array of their shape", "Members.of([pass_1, pass_2, ...])"
            raise BadTypeError("members", caller, rule, type(members).__name__, fix)
        return members, (members.n_rows,)
    if isinstance(members, list | tuple) and any(isinstance(m, BaseOutputs) for m in members):
        wrapped = Members.of(members)
        return wrapped, (wrapped.n_rows,)
    array = as_floats(as_array(members, "members", caller), "members", caller)
    if array.ndim < 3 or array.shape[-1] == 0:
        rule, fix = "passes x rows x classes", "np.stack([pass_1, pass_2, ...])"
        raise BadValueError("members", caller, rule, f"shape {array.shape}", fix)
    shape = array.shape[1:-1]
    n_rows = int(np.prod(shape))
    return Members(array.reshape(array.shape[0], n_rows, array.shape[-1])), shape


def _fill_rows(kernel: Callable[..., None], array: FloatArray, results: Sequence[Any]) -> None:
    """Fill results, one entry a row each, block by block over threads.

    Members in C order are read where they are; of others a block at a time is copied.
    """
    n_passes, n_rows, n_classes = array.shape
    is_whole = array.flags.c_contiguous

    def fill(rows: slice) -> None:
        part, first = (array, rows.start) if is_whole else (array[:, rows], 0)
        flat = contiguous(part).reshape(n_passes, -1)
        kernel(flat, first, n_classes, *(result[rows] for result in results))

    for _ in map_in_order(fill, row_blocks(n_rows, n_passes * n_classes)):
        pass


def _as_regressions(members: Any) -> Sequence[Normal | Samples] | None:
    """Return a list of `Normal` or `Samples`, or None where the members are of classes."""
    listed = [members] if isinstance(members, Normal | Samples) else members
    if not isinstance(listed, list | tuple):
        return None
    if not any(isinstance(one, Normal | Samples) for one in listed):
        return None
    for i, one in enumerate(listed):
        if not isinstance(one, Normal | Samples):
            rule, fix = "Normal or Samples, like the others", "outputs of one kind"
            raise BadTypeError(f"members[{i}]", CALLER, rule, type(one).__name__, fix)
    if len(listed) < 2:
        raise _too_few_passes(len(listed))
    return listed


def _split_variance(members: Sequence[Normal | Samples]) -> UncertaintyDecomposition:
    """Return the law of total variance: mean of the variances, and variance of the means."""
    with np.errstate(over="ignore", invalid="ignore"):  # told below, for all alike
        moments = [moments_of(one) for one in members]
        first = moments[0][0]
        for i, (mean, _) in enumerate(moments):
            if mean.shape != first.shape:
                rule, fix = f"of the first one's shape {first.shape}", "the same rows in each"
                raise BadValueError(f"members[{i}]", CALLER, rule, f"shape {mean.shape}", fix)
        aleatoric = np.mean([np.square(std) for _, std in moments], axis=0)
        # From the first on: means that are all the same vary by nothing at all.
        epistemic = np.var([mean - first for mean, _ in moments], axis=0)
        total = aleatoric + epistemic
    if not np.isfinite(total).all():
        rule, fix = "of a variance that a float can hold", "targets in a larger unit"
        raise BadValueError("members", CALLER, rule, "one beyond 1.8e308", fix)
    return UncertaintyDecomposition(total, aleatoric, epistemic)


def moments_of(outputs: Normal | Samples) -> tuple[FloatArray, FloatArray]:
    """Return mean and std of each row, in float64; of draws, those of what they were drawn from.

    Draws are taken in units of their size, so that no square overflows, and from the first on, so
    that equal ones have no spread at all; nor has a single one.
    """
    if isinstance(outputs, Normal):
        return outputs.mean.astype(np.float64), outputs.std.astype(np.float64)
    draws = outputs.array.astype(np.float64)
    _, exponent = np.frexp(np.abs(draws).max(axis=1, keepdims=True))
    units = np.ldexp(draws, -exponent)
    first, size = units[:, :1], exponent[:, 0]
    beyond = units - first
    std = beyond.std(axis=1, ddof=min(1, draws.shape[1] - 1))
    return np.ldexp(beyond.mean(axis=1) + first[:, 0], size), np.ldexp(std, size)


def _too_few_passes(n_passes: int) -> BadValueError:
    """Say that one pass cannot disagree with itself."""
    fix = "several passes: an ensemble, dropout, or augmented views"
    rule = "2 passes or more, as one shows no epistemic doubt"
    return BadValueError("members", CALLER, rule, f"{n_passes}", fix)


VOTE = "vote"
WAYS = ("mode", "mean", "confidence", "certainty")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Vote:
    """The class (its column's number) that won in each row, and its share of all weight there."""

    prediction: IntArray
    agreement: FloatArray


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
    >>> vote(views).prediction.tolist(), vote(views, by="mean").prediction.tolist()
    ([0], [1])
    """
    if by not in WAYS:
        rule, fix = "'mode', 'mean', 'confidence' or 'certainty'", "by='mode'"
        raise BadValueError("by", VOTE, rule, repr(by), fix)
    limit = _as_threshold(threshold, by)
    wrapped, shape = _as_members(members, VOTE)
    chosen, share = np.empty(wrapped.n_rows, np.int64), np.empty(wrapped.n_rows)
    if by == "mean":
        _fill_rows(mean_tops, wrapped.array, (chosen, share))
    else:
        votes, confidence = _top_votes(wrapped)
        weights = _weights_of(wrapped, confidence, by, limit)
        tally_rows(contiguous(votes), contiguous(weights), wrapped.n_classes, chosen, share)
    return Vote(chosen.reshape(shape), share.reshape(shape))


def _as_threshold(threshold: Any, by: str) -> float | None:
    """Return the value that a view must reach to count, or None."""
    if threshold is None:
        return None
    if by in ("mode", "mean"):
        fix = "by='confidence' or by='certainty'"
        raise BadValueError("threshold", VOTE, f"None by {by!r}", repr(threshold), fix)
    is_number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not (is_number and np.isfinite(threshold)):
        rule = "a finite number, or None"
        raise BadValueError("threshold", VOTE, rule, repr(threshold), "threshold=0.5")
    return float(threshold)


def _top_votes(members: Members) -> tuple[IntArray, FloatArray]:
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


def _weights_of(
    members: Members, confidence: FloatArray, by: str, threshold: float | None
) -> FloatArray:
    """Return what each view's vote weighs, passes x rows; no row is without weight."""
    weights = np.ones(confidence.shape)
    if by != "mode":
        values = confidence if by == "confidence" else _certainty_of(members)
        if threshold is None:
            weights = values.astype(np.float64)
            highest = weights.max(axis=0)
            np.divide(weights, highest, out=weights, where=highest > 0)  # sums cannot overflow
        else:
            # NumPy rounds the threshold as the values were: 0.7 in float32 reaches 0.7.
            weights = (values >= threshold).astype(np.float64)
    weights[:, ~weights.any(axis=0)] = 1.0
    return weights


def _certainty_of(members: Members) -> FloatArray:
    """Return what each view says of its own trust, 0 or above."""
    if members.certainty is None:
        rule, fix = "given to vote by 'certainty'", "Members(array, certainty=...)"
        raise BadValueError("members.certainty", VOTE, rule, "None", fix)
    is_negative = members.certainty < 0
    if is_negative.any():
        view, row = (int(place) for place in np.argwhere(is_negative)[0])
        got, fix = f"{members.certainty[view, row]} of pass {view}", "np.exp(-log_variance)"
        raise BadValueError("members.certainty", VOTE, "0 or above", got, fix, row)
    return members.certainty
