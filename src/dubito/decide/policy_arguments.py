"""What `Policy.fit` is asked, checked and made ready."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from dubito.calibrate.auto import AutoCalibrator
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.rows import as_class_outputs
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.data.truth import Labels
from dubito.decide.costs import CostMatrix
from dubito.decide.gate import Score, as_score
from dubito.doubt.mahalanobis import MahalanobisDistance
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.labeled import warn_of_missing

__all__ = [
    "as_feature_names",
    "as_score_or_none",
    "column_names",
    "evaluation_shards",
    "fresh_calibrator",
    "labeled_rows",
    "require_plain_labels",
    "require_reject",
]


def labeled_rows(outputs: Any, y: Any, **others: Any) -> Shards:
    """Return rows with labels as shards: what is shards already, or arrays in memory."""
    caller = "Policy.fit"
    if isinstance(outputs, Shards):
        given = [name for name, value in {"y": y, **others}.items() if value is not None]
        if given:
            fix = "these among the shards' columns"
            raise BadTypeError(given[0], caller, "None beside shards", "an argument", fix)
        return outputs
    known = as_class_outputs(outputs, caller)
    batch = Batch.of(y, known, **others, caller=caller, argument="y")
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=4)
    return ArrayShards(batch)


def fresh_calibrator(calibrator: Any) -> BaseCalibrator:
    """Return a calibrator that knows nothing yet."""
    if isinstance(calibrator, str) and calibrator == "auto":
        return AutoCalibrator()
    if not isinstance(calibrator, BaseCalibrator):
        rule, fix = "'auto' or a calibrator of dubito", "calibrator=TemperatureScaling()"
        raise BadTypeError("calibrator", "Policy.fit", rule, repr(calibrator), fix)
    twin: BaseCalibrator = clone(calibrator)
    return twin


def as_score_or_none(doubt: Any, has_features: bool) -> Score | None:
    """Return the doubt of the gate, None where there is none."""
    if doubt is None:
        return MahalanobisDistance() if has_features else None
    score = as_score(doubt, "Policy.fit")
    if not isinstance(score, str) and not has_features:
        rule, fix = "given beside a doubt of features", "features=..., or doubt='entropy'"
        raise BadTypeError("features", "Policy.fit", rule, "None", fix)
    return score


def require_reject(costs: CostMatrix, has_gate: bool, has_bound: bool) -> None:
    """Raise where rows may have to be handed over and there is nobody to take them."""
    if costs.n_actions == 1 and costs.reject is not None:
        rule, fix = "with an action that decides rows", "CostMatrix.zero_one(3).with_reject(0.3)"
        raise BadValueError("costs", "Policy.fit", rule, "one that hands them over alone", fix)
    if costs.reject is None and (has_gate or has_bound):
        why = "strange inputs are handed over" if has_gate else "`max_risk` hands rows over"
        rule = f"with an action that hands rows over, as {why}"
        fix = "costs.with_reject(0.3)"
        raise BadValueError("costs", "Policy.fit", rule, "none of that kind", fix)


def require_plain_labels(batch: Batch, caller: str) -> None:
    """Raise where labels are probabilities, of which nobody can count the errors."""
    if isinstance(batch.truth, Labels) and batch.truth.probabilities is not None:
        rule, got = "plain labels, one a row, beside `max_risk`", "label probabilities"
        raise BadValueError("y", caller, rule, got, "the most probable label of each row")


def evaluation_shards(evaluation: Any) -> Shards | None:
    """Return rows to be judged on as shards, None for folds of the rows of the fit."""
    if isinstance(evaluation, Batch):
        return ArrayShards(evaluation)
    if not isinstance(evaluation, Shards) and evaluation != "cross-fit":
        rule, fix = "'cross-fit', a Batch or Shards", "Batch.of(y, outputs, features=...)"
        raise BadTypeError("evaluation", "Policy.fit", rule, repr(evaluation)[:60], fix)
    return evaluation if isinstance(evaluation, Shards) else None


def as_feature_names(names: Any, features: Any, first: Batch) -> tuple[str, ...] | None:
    """Return what features are called: as told, or as the columns of a frame are."""
    if first.features is None:
        return None
    found = column_names(features) if names is None else tuple(str(name) for name in names)
    if found is not None and len(found) != first.features.shape[1]:
        rule, fix = f"{first.features.shape[1]} names, one a feature", "a name for every column"
        raise BadValueError("feature_names", "Policy.fit", rule, f"{len(found)}", fix)
    return found


def column_names(features: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, None for a plain array."""
    columns = getattr(features, "column_names", getattr(features, "columns", None))
    return None if columns is None else tuple(str(name) for name in columns)
