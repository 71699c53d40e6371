"""Decisions as the columns of a table, and as rows of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray
from dubito.calibrate.confidence import ANSWER_COLUMNS, ConfidenceCalibrator, answer_columns
from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.data.sink import EncodedLabels, Sink, class_columns
from dubito.decide.multilabel.label_decisions import MultiLabelDecisions
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.decide import REASONS
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.policy.policy import Policy
from dubito.decide.priors import adjust_prior, posteriors
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.outputs import ClassName, Probabilities


def write_decisions(
    policy: AnyPolicy,
    shards: Shards,
    sink: Sink,
    *,
    source: str | None = None,
    has_probabilities: bool | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Write what a policy decides for each row of shards, in order; return how many there are.

    The columns that batches keep come first (`Columns(keep=...)`). Rows are named by a column `id`
    among them, or by their ids or their numbers in the file, which `source` may name. The
    calibrated probability of each class is written for up to 20 classes, or as
    `has_probabilities` says.

    Parameters
    ----------
    policy : Policy, MultiLabelPolicy or RegressionPolicy
        Decides the rows.
    shards : Shards
        The rows, without labels.
    sink : Sink
        Where to write.
    source : str, optional
        The file that the rows come from, written in a column `file`.
    has_probabilities : bool, optional
        Whether to write calibrated probabilities; by default for up to 20 classes.
    on_progress : callable, optional
        Called with the number of rows written so far.

    Returns
    -------
    int
        The number of rows written.
    """
    return shards.write(
        lambda batch: decision_columns(policy, batch, source, has_probabilities),
        sink,
        on_progress=on_progress,
    )


MAX_CLASSES = 20  # whose probabilities are written by default
N_TOP = 3  # classes that a reviewer sees, of more


def decision_columns(
    policy: AnyPolicy,
    batch: Batch,
    source: str | None = None,
    has_probabilities: bool | None = None,
) -> dict[str, Any]:
    """Return what a policy decides for each row of a batch, as columns for a sink.

    `probability` is that of `class`, the most probable one. It is left out if the probability of
    each class is written: then it is the largest of them. If there are too many classes for that,
    `top_classes` names the most probable ones of rejected rows, for a review. For several labels
    per row, `action` is what is done with the row, and each label has a decision and a probability.
    For regression, `value` is what is decided, and `low` to `high` the prediction interval. For
    scores of answers, `p_correct` is P(correct), with its interval.
    """
    found: Any = policy.decide_batch(batch)
    if not isinstance(policy, Policy):
        columns = {**batch.beside(source), **found.encoded_columns()}
        if isinstance(found, MultiLabelDecisions):
            names = () if _has_each(has_probabilities, found.action.shape[1]) else found.label_names
            for name in names:
                del columns[f"probability_{name}"]
        return columns
    class_names = tuple(str(name) for name in found.classes)
    by_class: dict[str, Any] = {"class": EncodedLabels(found.predicted_class, class_names)}
    if isinstance(policy.calibrator, ConfidenceCalibrator):
        by_class = _deployed(answer_columns(policy.calibrator, batch.outputs), policy)
    elif _has_each(has_probabilities, len(found.classes)):
        p = found.probabilities
        by_class |= class_columns("probability_", p, found.classes, policy.pos_column)
    else:
        by_class["probability"] = found.probability
    columns = {
        **batch.beside(source),
        "action": EncodedLabels(found.action, found.actions),
        **by_class,
        "expected_cost": found.expected_cost,
        "reason": EncodedLabels(found.reason, REASONS),
        "review_value": found.review_value,
    }
    if found.reject is None or isinstance(policy.calibrator, ConfidenceCalibrator):
        return columns
    action, cost = policy.rule.fallback(found, batch.row_costs)
    columns |= {"fallback_action": EncodedLabels(action, found.actions), "fallback_cost": cost}
    if has_probabilities is None and len(found.classes) > MAX_CLASSES:
        rows = np.flatnonzero(found.is_rejected)
        texts = top_classes(posteriors(found.calibrated, rows), found.classes)
        columns["top_classes"] = np.zeros(len(found), texts.dtype)
        columns["top_classes"][rows] = texts
    return columns


def _deployed(columns: dict[str, FloatArray], policy: Policy) -> dict[str, FloatArray]:
    """Return P(correct) of answers, and its interval, under the prior of deployment."""
    if policy.deploy_prior is None:
        return columns
    deployed = {}
    for name, p in columns.items():
        both = Probabilities(np.column_stack([1 - p, p]), policy.costs.classes)
        adjusted = adjust_prior(both, policy.train_prior, policy.deploy_prior)
        deployed[name] = posteriors(adjusted)[:, 1]
    return deployed


def decision_names(policy: AnyPolicy, has_probabilities: bool | None = None) -> list[str]:
    """Return the names of the columns that decisions may have, besides `file` and `id`."""
    if isinstance(policy, RegressionPolicy):
        return ["action", "value", "low", "high", "expected_cost", "reason", "review_value"]
    if isinstance(policy, MultiLabelPolicy):
        names = ["action", "expected_cost", "review_value"]
        has_each = _has_each(has_probabilities, len(policy.label_names))
        kinds = ["decision", *(["probability"] if has_each else [])]
        return names + [f"{kind}_{name}" for kind in kinds for name in policy.label_names]
    if isinstance(policy.calibrator, ConfidenceCalibrator):
        return ["action", *ANSWER_COLUMNS, "expected_cost", "reason", "review_value"]
    names = ["action", "class", "probability", "expected_cost", "reason", "review_value"]
    names += ["fallback_action", "fallback_cost", "top_classes"]
    if _has_each(has_probabilities, len(policy.classes)):
        names += [f"probability_{name}" for name in policy.classes]
    return names


def _has_each(wanted: bool | None, n_classes: int) -> bool:
    """Return whether the probability of each class or label is written."""
    return n_classes <= MAX_CLASSES if wanted is None else wanted


def top_classes(probabilities: FloatArray, classes: Sequence[ClassName]) -> NDArray[Any]:
    """Return the most probable classes of each row in words.

    >>> top_classes(np.array([[0.1, 0.5, 0.15, 0.25]]), ("cat", "dog", "fox", "owl")).tolist()
    ['dog 50.0 %, owl 25.0 %, fox 15.0 %']
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :N_TOP]
    names = np.array([f"{name} " for name in classes])[order]
    percents = np.char.mod("%.1f %%", 100 * np.take_along_axis(probabilities, order, axis=1))
    first, *others = np.char.add(names, percents).T
    for other in others:
        first = np.char.add(np.char.add(first, ", "), other)
    return np.asarray(first)
