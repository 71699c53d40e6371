"""Out-of-sample figures: calibrators fitted on some folds and evaluated on the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, check_cv

from dubito.arrays import FloatArray, IntArray, require_everywhere
from dubito.calibrate.inputs import FLOOR, LabelledRows, as_class_outputs, log_probabilities
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadValueError, DubitoWarning
from dubito.outputs import Logits

if TYPE_CHECKING:
    from dubito.calibrate.calibrator import BaseCalibrator


N_FOLDS = 5
MOST_ROWS = 20_000  # of a larger fit, a seeded subsample of so many rows is cross-fitted

Fold = tuple[IntArray, IntArray]


def evidence_of(calibrator: BaseCalibrator) -> str:
    """Say what a fitted calibrator does to log loss, cross-fitted, as far as that can be told."""
    if not hasattr(calibrator, "evidence_"):
        shards = getattr(calibrator, "_shards", None)
        if shards is None:
            return "what it does to log loss was not asked while its rows were at hand"
        if mark_of(shards) != calibrator._mark:
            return "its rows have changed since the fit, which hides what it does to log loss"
        batch = labeled_only(sample_rows(shards, MOST_ROWS))
        if len(batch) < 2:
            return "too few rows to tell what it does to log loss"
        if batch.groups is not None and len(set(batch.groups.tolist())) < 2:
            return "what it does to log loss cannot be told by rows that are all of one group"
        calibrator.evidence_ = _cross_fitted_losses(calibrator, batch)
    before, after, n_rows = (calibrator.evidence_[key] for key in ("before", "after", "n_rows"))
    return f"log loss {before:.3f} to {after:.3f}, cross-fitted on {n_rows:,} rows"


def _cross_fitted_losses(calibrator: BaseCalibrator, batch: Batch) -> dict[str, Any]:
    """Return the log loss of what came in, and of rows that each fold's calibrator did not see."""
    folds = folds_of(batch, min(N_FOLDS, len(batch)))
    held = held_out_likelihoods(calibrator, batch, folds)
    after = -(held.weights @ np.log(held.likelihoods)) / held.weights.sum()
    rows = LabelledRows.of(batch)
    came, weights, _ = rows.likelihoods_of([np.exp(log_probabilities(rows.outputs))])
    before = -(weights @ np.log(np.maximum(came[:, 0], FLOOR))) / weights.sum()
    # Adding 0 takes the sign from a loss of -0.
    return {"before": float(before) + 0.0, "after": float(after) + 0.0, "n_rows": len(batch)}


class HeldOut(NamedTuple):
    """What held-out labels are given, entry by entry: their weights, folds, and rows."""

    likelihoods: FloatArray
    weights: FloatArray
    fold_of: IntArray
    row_of: IntArray


def held_out_likelihoods(
    calibrator: BaseCalibrator, batch: Batch, folds: Sequence[Fold]
) -> HeldOut:
    """Return what labels are given that were held out, by what the other rows taught.

    Warnings of single folds are not passed on: what they are of, the fit on all rows tells.
    """
    found = []
    for fold, (train, test) in enumerate(folds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DubitoWarning)
            fitted = clone(calibrator).fit(ArrayShards(batch.take(train)))
        rows = LabelledRows.of(batch.take(test))
        likelihoods, weights, held = rows.likelihoods_of([fitted.predict_proba(rows.outputs)])
        found.append((likelihoods[:, 0], weights, np.full(weights.size, fold), test[held]))
    return HeldOut(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def held_out_logits(
    calibrator: BaseCalibrator, batch: Batch, folds: Sequence[Fold]
) -> list[Logits]:
    """Return, for each fold, what a calibrator of the other rows makes of its outputs.

    `calibrator` is fitted on all rows: what it chose there stays, what it learned does not.
    """
    found = []
    for train, test in folds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DubitoWarning)
            fitted = calibrator.for_folds().fit(ArrayShards(batch.take(train)))
        found.append(fitted.transform(batch.outputs.take(test)))
    return found


def folds_of(batch: Batch, cv: Any, seed: int = 0) -> list[Fold]:
    """Return (fitted, held out) row numbers of each fold, of the rows that have a label and weight.

    A number makes so many seeded folds; where there are groups, of whole ones, and no more folds
    than groups. Anything else is what scikit-learn takes as `cv`, and sees all rows. Folds by
    number do not spread classes evenly: frequencies that all folds share would flatter whatever
    fits frequencies.
    """
    rows = np.arange(len(batch))
    is_used = batch.labeled_weight > 0
    if is_number(cv):
        if not 2 <= cv <= is_used.sum():
            rule, fix = f"a number of folds from 2 to the {is_used.sum():,} rows", "cv=5"
            raise BadValueError("cv", "AutoCalibrator", rule, repr(cv), fix)
        if batch.groups is None:
            order = np.random.default_rng(seed).permutation(rows[is_used])
            parts = [np.sort(part) for part in np.array_split(order, cv)]
            return [(np.setdiff1d(order, part), part) for part in parts]
        n_folds = n_group_folds(batch.groups[is_used], cv, "AutoCalibrator")
        cv = GroupKFold(n_folds, shuffle=True, random_state=seed)
    try:
        splits = list(check_cv(cv).split(rows, _codes_of(batch), batch.groups))
        found = [(rows[train], rows[test]) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        rule = "a number of folds, or a splitter of scikit-learn that suits the rows"
        raise BadValueError("cv", "AutoCalibrator", rule, f"{cv!r} ({error})", "cv=5") from error
    return [(train[is_used[train]], test[is_used[test]]) for train, test in found]


def n_group_folds(groups: NDArray[Any], most: int, caller: str) -> int:
    """Return how many folds can be made of whole groups, up to so many."""
    is_there = np.array([one is not None and one == one for one in groups.tolist()], dtype=bool)
    rule, fix = "given for each row", "a group of their own for rows that have none"
    require_everywhere(is_there, groups, "groups", caller, rule, fix)
    n_groups = len(set(groups.tolist()))
    if n_groups < 2:
        rule, fix = "two different ones or more", "leaving them out"
        raise BadValueError("groups", caller, rule, "one for all rows", fix)
    return min(most, n_groups)


def is_number(cv: Any) -> bool:
    """Tell a number of folds from a splitter."""
    return isinstance(cv, int | np.integer) and not isinstance(cv, bool)


def _codes_of(batch: Batch) -> IntArray:
    """Return a class a row: the label, or the most probable one."""
    labels = batch.labels
    assert isinstance(labels, Labels)
    soft = labels.probabilities
    return labels.codes if soft is None else np.asarray(soft.argmax(axis=1))


def mark_of(shards: Shards) -> int:
    """Return a number that changes if rows in memory are written over; 0 for others."""
    if not isinstance(shards, ArrayShards):
        return 0
    some = shards.batch.take(slice(0, None, max(1, len(shards.batch) // 100)))
    return hash(as_class_outputs(some.outputs, "a calibrator").array.tobytes())


def labeled_only(batch: Batch) -> Batch:
    """Return the rows that have a label and weigh something."""
    is_used = batch.labeled_weight > 0
    return batch if is_used.all() else batch.take(np.flatnonzero(is_used))
