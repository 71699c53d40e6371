"""Several members or stochastic passes per row: aleatoric and epistemic uncertainty, and votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    FloatArray,
    IntArray,
    as_floats,
    as_number,
    contiguous,
    require_choice,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels import uncertainty as kernels
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.outputs import (
    BaseOutputs,
    Members,
    MultiLabelMembers,
    Normal,
    RegressionMembers,
    Samples,
)

KERNELS = {"entropy": kernels.entropy_parts, "variance": kernels.variance_parts}
METHODS = ("mode", "mean", "confidence", "certainty")
DECOMPOSE, VOTE = "decompose_uncertainty", "vote"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UncertaintyDecomposition(ArrayResult):
    """Uncertainty in two parts that sum to the total; none is negative.

    Attributes
    ----------
    total : ndarray
        Total uncertainty per row (or pixel).
    aleatoric : ndarray
        Noise in the data, which more data of the same kind does not reduce.
    epistemic : ndarray
        Disagreement of the members: what the model does not know.
    """

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


def decompose_uncertainty(
    members: Any, by: Literal["entropy", "variance"] | None = None
) -> UncertaintyDecomposition:
    """Return the aleatoric and the epistemic uncertainty of several members or passes.

    Parameters
    ----------
    members : Members, MultiLabelMembers, RegressionMembers, array-like, or sequence of outputs
        Probabilities of shape (n_passes, n_rows, n_classes); maps have shape (n_passes,
        n_images, height, width, n_classes) and give one number per pixel, several binary labels
        one per row and label. For regression, `RegressionMembers`, or one `Normal` or `Samples`
        per member.
    by : {"entropy", "variance"}, optional
        With "entropy" (nats, the default for classes) the epistemic part is the mutual
        information of label and member; with "variance" it is the variance of the members'
        probabilities. Regression supports "variance" only, in squared units of the target.

    Returns
    -------
    UncertaintyDecomposition
        Total, aleatoric and epistemic uncertainty.

    References
    ----------
    Depeweg et al., "Decomposition of uncertainty in Bayesian deep learning for efficient and
    risk-sensitive learning", 2018.

    Examples
    --------
    >>> from dubito.doubt import decompose_uncertainty
    >>> parts = decompose_uncertainty([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
    >>> parts.aleatoric.round(3).tolist(), parts.epistemic.round(3).tolist()
    ([0.0, 0.693], [0.693, 0.0])
    """
    if by is not None:
        require_choice(by, tuple(KERNELS), "by", DECOMPOSE)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is an error later
        moments = _as_moments(members)
    if moments is not None:
        if by == "entropy":
            rule, fix = "must be 'variance' for a regression", "Use by='variance'"
            raise BadValueError("by", DECOMPOSE, rule, "'entropy'", fix)
        return _decompose_variance(*moments)
    wrapped, shape = _as_members(members, DECOMPOSE)
    if wrapped.n_passes < 2:
        raise _too_few_members(wrapped.n_passes)
    parts = np.empty((3, wrapped.n_rows))
    _fill_rows(KERNELS[by or "entropy"], wrapped.array, tuple(parts))
    return UncertaintyDecomposition(*parts.reshape(3, *shape))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Vote(ArrayResult):
    """The outcome of a vote per row.

    Attributes
    ----------
    prediction : ndarray of int
        The column of the class that won.
    agreement : ndarray of float
        Its fraction of the total weight of the votes; for ``by="mean"`` its mean probability.
    """

    prediction: IntArray
    agreement: FloatArray


def vote(
    members: Any,
    by: Literal["mode", "mean", "confidence", "certainty"] = "mode",
    threshold: float | None = None,
) -> Vote:
    """Return the class that several members, passes or views vote for.

    Parameters
    ----------
    members : Members or array-like of shape (n_passes, n_rows, n_classes)
        Probabilities of each member; maps as in `decompose_uncertainty`.
    by : {"mode", "mean", "confidence", "certainty"}, default="mode"
        The weight of a member's vote for its most probable class: 1 ("mode", a majority vote),
        its largest probability ("confidence") or `Members.certainty` ("certainty"). "mean" takes
        the most probable class of the mean probabilities instead.
    threshold : float, optional
        With "confidence" or "certainty": members that reach it vote with weight 1, others do not
        vote. Where none does, all vote with weight 1.

    Returns
    -------
    Vote
        Winning class and agreement per row. The first class wins a tie.

    Examples
    --------
    >>> from dubito import Members
    >>> from dubito.doubt import vote
    >>> views = Members([[[0.6, 0.4]], [[0.6, 0.4]], [[0.0, 1.0]]])
    >>> vote(views).prediction.tolist(), vote(views, by="mean").prediction.tolist()
    ([0], [1])
    """
    require_choice(by, METHODS, "by", VOTE)
    limit = _as_threshold(threshold, by)
    wrapped, shape = _as_members(members, VOTE)
    winner, agreement = np.empty(wrapped.n_rows, np.int64), np.empty(wrapped.n_rows)
    if by == "mean":
        _fill_rows(kernels.mean_tops, wrapped.array, (winner, agreement))
    else:
        votes, confidence = _top_classes(wrapped)
        weights = _vote_weights(wrapped, confidence, by, limit)
        kernels.tally_rows(
            contiguous(votes), contiguous(weights), wrapped.n_classes, winner, agreement
        )
    return Vote(winner.reshape(shape), agreement.reshape(shape))


def mean_and_std(outputs: Normal | Samples) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each row, in float64.

    Samples are scaled by a power of 2, so that no square overflows, and shifted by the first, so
    that equal ones have a standard deviation of exactly 0.
    """
    if isinstance(outputs, Normal):
        return outputs.mean.astype(np.float64), outputs.std.astype(np.float64)
    samples = outputs.array.astype(np.float64)
    _, exponent = np.frexp(np.abs(samples).max(axis=1, keepdims=True))
    scaled = np.ldexp(samples, -exponent)
    first, size = scaled[:, :1], exponent[:, 0]
    shifted = scaled - first
    std = shifted.std(axis=1, ddof=min(1, samples.shape[1] - 1))
    return np.ldexp(shifted.mean(axis=1) + first[:, 0], size), np.ldexp(std, size)


def _as_members(members: Any, caller: str) -> tuple[Members, tuple[int, ...]]:
    """Return members, and the shape of a result with one number per row or pixel."""
    if isinstance(members, MultiLabelMembers):
        p = members.array
        return _as_members(np.stack([1 - p, p], axis=-1), caller)
    if isinstance(members, BaseOutputs):
        if not isinstance(members, Members):
            rule, fix = "must be Members or an array", "Use Members.of([pass_1, pass_2, ...])"
            raise BadTypeError("members", caller, rule, type(members).__name__, fix)
        return members, (members.n_rows,)
    if isinstance(members, list | tuple) and any(isinstance(m, BaseOutputs) for m in members):
        wrapped = Members.of(members)
        return wrapped, (wrapped.n_rows,)
    array = as_floats(members, "members", caller)
    if array.ndim < 3 or array.shape[-1] == 0:
        rule, fix = "must be passes x rows x classes", "Use np.stack([pass_1, pass_2, ...])"
        raise BadValueError("members", caller, rule, f"shape {array.shape}", fix)
    n_passes, *shape, n_classes = array.shape
    return Members(array.reshape(n_passes, int(np.prod(shape)), n_classes)), tuple(shape)


def _fill_rows(kernel: Callable[..., None], array: FloatArray, results: Sequence[Any]) -> None:
    """Fill results, one entry per row each, block by block in threads.

    Members in C order are read in place; others are copied a block at a time.
    """
    n_passes, n_rows, n_classes = array.shape
    in_place = array.flags.c_contiguous

    def fill(rows: slice) -> None:
        part, first = (array, rows.start) if in_place else (array[:, rows], 0)
        flat = contiguous(part).reshape(n_passes, -1)
        kernel(flat, first, n_classes, *(result[rows] for result in results))

    run_in_order(fill, row_blocks(n_rows, n_passes * n_classes))


def _as_moments(members: Any) -> tuple[FloatArray, FloatArray] | None:
    """Return means and standard deviations of regressions, or None for a classifier's members."""
    if isinstance(members, RegressionMembers):
        members = [Normal(*pair) for pair in zip(members.means, members.stds, strict=True)]
    listed = [members] if isinstance(members, Normal | Samples) else members
    is_list = isinstance(listed, list | tuple)
    if not is_list or not any(isinstance(one, Normal | Samples) for one in listed):
        return None
    moments = []
    for i, one in enumerate(listed):
        if not isinstance(one, Normal | Samples):
            rule, fix = "must be Normal or Samples, like the others", "Pass outputs of one kind"
            raise BadTypeError(f"members[{i}]", DECOMPOSE, rule, type(one).__name__, fix)
        moments.append(mean_and_std(one))
        first, shape = moments[0][0].shape, moments[i][0].shape
        if shape != first:
            rule, fix = f"must have the shape of the first, {first}", "Pass the same rows in each"
            raise BadValueError(f"members[{i}]", DECOMPOSE, rule, f"shape {shape}", fix)
    if len(listed) < 2:
        raise _too_few_members(len(listed))
    means, stds = (np.stack(parts) for parts in zip(*moments, strict=True))
    return means, stds


def _decompose_variance(means: FloatArray, stds: FloatArray) -> UncertaintyDecomposition:
    """Apply the law of total variance: mean of the variances plus variance of the means."""
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is an error below
        aleatoric = np.square(stds).mean(axis=0)
        # Relative to the first: equal means have a variance of exactly 0.
        epistemic = (means - means[0]).var(axis=0)
        total = aleatoric + epistemic
    if not np.isfinite(total).all():
        rule, fix = "must have a finite variance in float64", "Use a larger unit for the target"
        raise BadValueError("members", DECOMPOSE, rule, "an overflow", fix)
    return UncertaintyDecomposition(total, aleatoric, epistemic)


def _too_few_members(n_members: int) -> BadValueError:
    """Return the error for a single member, which has no epistemic uncertainty to show."""
    rule = "must have at least 2 passes to show epistemic uncertainty"
    fix = "Use an ensemble, dropout passes or augmented views"
    return BadValueError("members", DECOMPOSE, rule, f"{n_members}", fix)


def _as_threshold(threshold: Any, by: str) -> float | None:
    """Return the value that a member must reach to vote, or None."""
    if threshold is None:
        return None
    if by in ("mode", "mean"):
        rule, fix = f"must be None with by={by!r}", "Use by='confidence' or by='certainty'"
        raise BadValueError("threshold", VOTE, rule, repr(threshold), fix)
    return as_number(threshold, "threshold", VOTE, fix="Use threshold=0.5")


def _top_classes(members: Members) -> tuple[IntArray, FloatArray]:
    """Return each member's most probable class and its probability, passes x rows."""
    n_passes, n_rows, n_classes = members.array.shape
    votes = np.empty((n_passes, n_rows), np.int64)
    confidence = np.empty((n_passes, n_rows), members.array.dtype)

    def fill(item: tuple[int, slice]) -> None:
        i, rows = item
        kernels.top_rows(contiguous(members.array[i, rows]), votes[i, rows], confidence[i, rows])

    blocks = row_blocks(n_rows, n_classes)
    run_in_order(fill, [(i, rows) for i in range(n_passes) for rows in blocks])
    return votes, confidence


def _vote_weights(
    members: Members, confidence: FloatArray, by: str, threshold: float | None
) -> FloatArray:
    """Return the weight of each member's vote, passes x rows; each row has some weight."""
    weights = np.ones(confidence.shape)
    if by != "mode":
        values = confidence if by == "confidence" else _require_certainty(members)
        if threshold is None:
            weights = values.astype(np.float64)
            highest = weights.max(axis=0)
            np.divide(weights, highest, out=weights, where=highest > 0)  # sums cannot overflow
        else:
            # NumPy rounds the threshold to the precision of the values: 0.7 in float32 reaches 0.7.
            weights = (values >= threshold).astype(np.float64)
    weights[:, ~weights.any(axis=0)] = 1.0
    return weights


def _require_certainty(members: Members) -> FloatArray:
    """Return the certainty of each member, which must be given and not negative."""
    if members.certainty is None:
        rule, fix = "must be given with by='certainty'", "Use Members(array, certainty=...)"
        raise BadValueError("members.certainty", VOTE, rule, "None", fix)
    is_negative = members.certainty < 0
    if is_negative.any():
        member, row = np.argwhere(is_negative)[0].tolist()
        got, fix = f"{members.certainty[member, row]} of pass {member}", "Use np.exp(-log_variance)"
        raise BadValueError("members.certainty", VOTE, "must not be negative", got, fix, row)
    return members.certainty
