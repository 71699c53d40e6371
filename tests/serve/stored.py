"""Rows as a service would have stored them, with the true labels."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, Policy
from dubito.serve.policy_metrics import ClassWindow, MonitorReport, monitor_classes
from dubito.serve.store import AlarmHistory, StoredRows

__all__ = [
    "drawn_rows",
    "fitted_policy",
    "history_of",
    "labels_where",
    "report_of",
    "without_draws",
]


def draw(rng: np.random.Generator, n: int, sharper: float) -> tuple[Any, Any]:
    """Return over-confident logits of three classes, and labels."""
    calibrated = rng.normal(0, 2, (n, 3))
    y = (calibrated + rng.gumbel(size=calibrated.shape)).argmax(axis=1)
    return (sharper * calibrated).astype(np.float32), y


def fitted_policy(**settings: Any) -> Policy:
    logits, y = draw(np.random.default_rng(0), 3000, 1.8)
    costs = CostMatrix.zero_one(3).with_reject(0.25)
    return Policy.fit(Logits(logits), y, costs=costs, calibrator=TemperatureScaling(), **settings)


def drawn_rows(
    policy: Policy, n: int, audit_fraction: float, *, seed: int = 1, sharper: float = 1.8
) -> tuple[StoredRows, NDArray[Any]]:
    """Return rows with the labels of rejected and audited ones, and the labels of all."""
    rng = np.random.default_rng(seed)
    logits, y = draw(rng, n, sharper)
    decisions = policy.decide(Logits(logits))
    is_rejected, is_audit = decisions.is_rejected, rng.random(n) < audit_fraction
    is_known = is_rejected | is_audit
    rows = StoredRows(
        id=np.arange(n).astype(np.str_),
        policy_id=np.ones(n, np.int64),
        created=60.0 * np.arange(n),
        is_logits=np.ones(n, np.bool_),
        outputs=logits,
        probabilities=policy.predict_proba(Logits(logits)).astype(np.float32),
        action=decisions.action,
        predicted_class=decisions.predicted_class,
        propensity=np.where(is_rejected, 1.0, audit_fraction),
        audit_probability=np.full(n, float(audit_fraction)),
        is_audit=is_audit,
        row_costs=np.full(n, None, np.object_),
        label=np.where(is_known, y, -1),
        labeled=np.where(is_known, 60.0 * np.arange(n), np.nan),
        is_unresolved=np.zeros(n, np.bool_),
        answers=np.full(n, None, np.object_),
        label_actions=np.full(n, None, np.object_),
    )
    return rows, y


def labels_where(rows: StoredRows, is_known: Any) -> StoredRows:
    """Return the rows with fewer labels."""
    return replace(rows, label=np.where(is_known, rows.label, -1))


def history_of(rows: StoredRows) -> AlarmHistory:
    """Return the history of the alarms, if no label was corrected."""
    top = rows.probabilities.max(axis=1, initial=0.0).astype(float)
    drawn = np.flatnonzero(rows.is_audit & (rows.label >= 0))
    both = np.maximum(rows.labeled, rows.created)[drawn]
    drawn = drawn[np.argsort(both, kind="stable")]
    is_correct = rows.predicted_class[drawn] == rows.label[drawn]
    return AlarmHistory(np.clip(1 - top, 0, 1), np.minimum(top[drawn], 1), is_correct)


def report_of(rows: StoredRows, policy: Policy) -> MonitorReport[ClassWindow]:
    """Return the report of rows that are all rows."""
    return monitor_classes(rows, policy, history_of(rows))


def without_draws(rows: StoredRows) -> StoredRows:
    """Return the rows as if none had been drawn at random."""
    none = np.zeros(len(rows))
    propensity = np.where(rows.propensity < 1, 0.0, 1.0)
    return replace(
        rows, propensity=propensity, audit_probability=none, is_audit=none.astype(np.bool_)
    )
