"""A scikit-learn classifier that minimizes the expected cost of its decisions."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.classifier import CalibratedClassifier
from dubito.decide.actions import optimal_actions
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.realized import realized_cost
from dubito.outputs import Probabilities


@final
class CostSensitiveClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A calibrated classifier that predicts the action of lowest expected cost.

    Parameters
    ----------
    estimator : classifier, optional
        As for `CalibratedClassifier`.
    costs : CostMatrix, optional
        By default every error costs 1.
    calibrator : BaseCalibrator, optional
        As for `CalibratedClassifier`.
    cv : int, splitter or iterable, default 5
        As for `CalibratedClassifier`.

    Attributes
    ----------
    classes_ : array
        The class labels.
    costs_ : CostMatrix
        The costs, with columns in the order of `classes_`.
    model_ : CalibratedClassifier
        The fitted classifier.

    References
    ----------
    Elkan, "The foundations of cost-sensitive learning", 2001.

    Examples
    --------
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
        """Fit the estimator and its calibrator.

        Parameters
        ----------
        X : array
            Features.
        y : array
            Labels.
        sample_weight, groups : array, optional
            Weights of the rows, and groups that no fold may divide.

        Returns
        -------
        CostSensitiveClassifier
        """
        model = CalibratedClassifier(self.estimator, self.calibrator, self.cv)
        model.fit(X, y, sample_weight, groups)
        names = tuple(model.classes_.tolist())
        costs = CostMatrix.zero_one(names) if self.costs is None else self.costs
        table = as_costs(costs, "costs", type(self).__name__).for_classes(names, len(names))
        self.classes_, self.costs_, self.model_ = model.classes_, _named(table, names), model
        return self

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return calibrated probabilities, rows x classes, in the order of `classes_`.

        Parameters
        ----------
        X : array
            Features.

        Returns
        -------
        array of float
        """
        check_is_fitted(self)
        return self.model_.predict_proba(X)

    def predict(self, X: Any, row_costs: Any = None) -> NDArray[Any]:  # noqa: N803
        """Return the action of lowest expected cost for each row.

        Parameters
        ----------
        X : array
            Features.
        row_costs : array, optional
            One number per row, needed where the costs have a rate.

        Returns
        -------
        array
            The class label if the action has its name, otherwise the name of the action.
        """
        actions = self._actions(X, row_costs)
        return np.asarray(self._action_labels()[actions])

    def score(self, X: Any, y: Any, sample_weight: Any = None, row_costs: Any = None) -> float:  # noqa: N803
        """Return the negative mean cost of the predictions, so that higher is better.

        Parameters
        ----------
        X : array
            Features.
        y : array
            Labels.
        sample_weight : array, optional
            Weights of the rows.
        row_costs : array, optional
            One number per row, needed where the costs have a rate.

        Returns
        -------
        float
        """
        actions = self._actions(X, row_costs)
        return -realized_cost(y, actions, self.costs_, row_costs, sample_weight=sample_weight)

    def _actions(self, X: Any, row_costs: Any) -> IntArray:  # noqa: N803
        """Return the index of the action of lowest expected cost for each row."""
        outputs = Probabilities(self.predict_proba(X), self.classes_.tolist())
        return optimal_actions(outputs, self.costs_, row_costs)

    def summary(self) -> str:
        """Return a description of the fitted calibrator."""
        check_is_fitted(self)
        return self.model_.summary()

    @property
    def n_features_in_(self) -> int:
        """The number of features of the fit, if the estimator reports it."""
        return self.model_.n_features_in_

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the features, if the estimator knows them."""
        return self.model_.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        return get_tags(CalibratedClassifier(self.estimator, self.calibrator, self.cv))

    def _action_labels(self) -> NDArray[Any]:
        """Return the label of each action: a class label if it has that name."""
        number_of = {str(name): number for number, name in enumerate(self.classes_.tolist())}
        if all(action in number_of for action in self.costs_.actions):
            return np.asarray(self.classes_[[number_of[name] for name in self.costs_.actions]])
        known = {str(name): name for name in self.classes_.tolist()}
        return np.array([known.get(name, name) for name in self.costs_.actions], dtype=object)


def _named(costs: CostMatrix, classes: tuple[Any, ...]) -> CostMatrix:
    """Return costs with class names for columns, and for actions that are only numbers."""
    if costs.classes is not None:
        return costs
    n_classes, actions = len(classes), list(costs.actions)
    if actions[:n_classes] == [str(number) for number in range(n_classes)]:
        actions[:n_classes] = [str(name) for name in classes]
    return CostMatrix(costs.array, actions, classes, rate=costs.rate, reject=costs.reject_name)
