"""A scikit-learn classifier that decides by what its errors cost."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.classifier import CalibratedClassifier
from dubito.decide.actions import optimal_actions
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.realized import realized_cost
from dubito.outputs import Probabilities


@final
class CostSensitiveClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier, calibrated, whose answer is the action of least expected cost.

    `estimator`, `calibrator` and `cv` are those of `CalibratedClassifier`. Without `costs` all
    errors cost the same. `predict` gives the class that an action is called like, and the name of
    any other; `score` is what rows cost on average, below 0 so that more is better. Elkan,
    "The foundations of cost-sensitive learning", 2001.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> costs = CostMatrix.zero_one([0, 1]).with_reject(0.1, name="see a doctor")
    >>> CostSensitiveClassifier(GaussianNB(), costs).fit(X, y).predict(X[73:76]).tolist()
    ['see a doctor', 1, 0]
    """

    classes_: NDArray[Any]
    costs_: CostMatrix
    model_: CalibratedClassifier

    def __init__(
        self,
        estimator: Any = None,
        costs: CostMatrix | None = None,
        calibrator: BaseCalibrator | None = None,
        cv: Any = 5,
    ) -> None:
        self.estimator = estimator
        self.costs = costs
        self.calibrator = calibrator
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:  # noqa: N803
        """Fit the estimator and its calibrator; costs may change later without another fit."""
        model = CalibratedClassifier(self.estimator, self.calibrator, self.cv)
        model.fit(X, y, sample_weight, groups)
        names = tuple(model.classes_.tolist())
        costs = CostMatrix.zero_one(names) if self.costs is None else self.costs
        table = as_costs(costs, "costs", type(self).__name__).for_classes(names, len(names))
        self.classes_, self.costs_, self.model_ = model.classes_, _named(table, names), model
        return self

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return calibrated probabilities, rows x classes, in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.predict_proba(X)

    def predict(self, X: Any, row_costs: Any = None) -> NDArray[Any]:  # noqa: N803
        """Return the action of least expected cost of each row; `row_costs` as costs need them."""
        outputs = Probabilities(self.predict_proba(X), self.classes_.tolist())
        actions = optimal_actions(outputs, self.costs_, row_costs)
        return np.asarray(self._answers()[actions])

    def score(self, X: Any, y: Any, sample_weight: Any = None, row_costs: Any = None) -> float:  # noqa: N803
        """Return the mean cost of the answers, with its sign turned."""
        outputs = Probabilities(self.predict_proba(X), self.classes_.tolist())
        actions = optimal_actions(outputs, self.costs_, row_costs)
        return -realized_cost(y, actions, self.costs_, row_costs, sample_weight=sample_weight)

    def summary(self) -> str:
        """Say in words what the calibrator learned."""
        check_is_fitted(self)
        return self.model_.summary()

    @property
    def n_features_in_(self) -> int:
        """How many features the estimator was fitted on, where it tells."""
        return self.model_.n_features_in_

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """What the features are called, where the estimator knows."""
        return self.model_.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        return get_tags(CalibratedClassifier(self.estimator, self.calibrator, self.cv))

    def _answers(self) -> NDArray[Any]:
        """Return what each action is called, as the classes are if it is one of them."""
        number_of = {str(name): number for number, name in enumerate(self.classes_.tolist())}
        if all(action in number_of for action in self.costs_.actions):
            return np.asarray(self.classes_[[number_of[name] for name in self.costs_.actions]])
        known = {str(name): name for name in self.classes_.tolist()}
        return np.array([known.get(name, name) for name in self.costs_.actions], dtype=object)


def _named(costs: CostMatrix, classes: tuple[Any, ...]) -> CostMatrix:
    """Return costs whose columns, and actions that are but numbers, are called like the classes."""
    if costs.classes is not None:
        return costs
    n_classes, actions = len(classes), list(costs.actions)
    if actions[:n_classes] == [str(number) for number in range(n_classes)]:
        actions[:n_classes] = [str(name) for name in classes]
    reject = None if costs.reject is None else actions[costs.reject]
    return CostMatrix(costs.array, actions, classes, rate=costs.rate, reject=reject)
