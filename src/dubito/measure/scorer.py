"""Metrics as scikit-learn scorers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from dubito.errors import BadTypeError, BadValueError
from dubito.measure.catalog import CATALOG
from dubito.outputs import Probabilities

__all__ = ["Scorer", "get_scorer"]


@final
@dataclass(frozen=True, slots=True)
class Scorer:
    """A metric of a fitted classifier, larger is better, as `scoring=` takes it.

    Classes are matched by name with the classifier's own `classes_`.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the metric of the classifier's probabilities, negative if it is a loss."""
        metric = CATALOG[self.name]
        if not hasattr(estimator, "predict_proba"):
            rule, fix = "a classifier with predict_proba", "CalibratedClassifierCV around it"
            raise BadTypeError("estimator", "get_scorer", rule, type(estimator).__name__, fix)
        outputs = Probabilities(estimator.predict_proba(X), classes=estimator.classes_)
        value = metric.function(y, outputs, sample_weight=sample_weight, **self.settings)
        return value if metric.is_higher_better else -value


def get_scorer(name: str, **settings: Any) -> Scorer:
    """Return a scikit-learn scorer of the metric of that name; losses come with a minus sign.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> model, (X, y) = LogisticRegression(max_iter=999), load_iris(return_X_y=True)
    >>> bool(cross_val_score(model, X, y, scoring=get_scorer("log_loss")).max() < 0)
    True
    """
    if name not in CATALOG:
        fix = f"one of {', '.join(sorted(CATALOG))}"
        raise BadValueError("name", "get_scorer", "a metric's name", repr(name), fix)
    CATALOG[name].require_settings(settings, "get_scorer")
    return Scorer(name, settings)
