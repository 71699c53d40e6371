"""Where several passes are in doubt: noise in the data, or ignorance of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, as_array, as_floats, contiguous
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.members import entropy_parts, variance_parts
from dubito.outputs import BaseOutputs, Members, Normal, Samples

__all__ = [
    "UncertaintyDecomposition",
    "as_members",
    "decompose_uncertainty",
    "fill_rows",
    "moments_of",
]

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
    numbers = as_regressions(members)
    if numbers is not None:
        if by == "entropy":
            rule = "'variance' for Normal or Samples"
            raise BadValueError("by", CALLER, rule, "'entropy'", "by='variance'")
        return split_variance(numbers)
    wrapped, shape = as_members(members, CALLER)
    if wrapped.n_passes < 2:
        raise too_few_passes(wrapped.n_passes)
    parts = np.empty((3, wrapped.n_rows))
    fill_rows(KERNELS[by or "entropy"], wrapped.array, tuple(parts))
    return UncertaintyDecomposition(*parts.reshape(3, *shape))


def as_members(members: Any, caller: str) -> tuple[Members, tuple[int, ...]]:
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


def fill_rows(kernel: Callable[..., None], array: FloatArray, results: Sequence[Any]) -> None:
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


def as_regressions(members: Any) -> Sequence[Normal | Samples] | None:
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
        raise too_few_passes(len(listed))
    return listed


def split_variance(members: Sequence[Normal | Samples]) -> UncertaintyDecomposition:
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


def too_few_passes(n_passes: int) -> BadValueError:
    """Say that one pass cannot disagree with itself."""
    fix = "several passes: an ensemble, dropout, or augmented views"
    rule = "2 passes or more, as one shows no epistemic doubt"
    return BadValueError("members", CALLER, rule, f"{n_passes}", fix)
