"""A scikit-learn classifier that minimizes the expected cost of its decisions."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import IntArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.classifier import CalibratedClassifier
from dubito.decide.actions import optimal_actions
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.realized import realized_cost
from dubito.errors import BadValueError
from dubito.outputs import Probabilities
from dubito.serialization.unfitted import require_fitted


@final
class CostSensitiveClassifier(CalibratedClassifier):
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
    costs_ : CostMatrix or None
        The costs, with columns in the order of `classes_`. None for labels that are codes, as
        scikit-learn's meta-estimators pass them, of costs whose class names are not sorted: then
        there are only probabilities.
    estimator_ : scikit-learn classifier
        The estimator fitted on all rows.
    calibrator_ : BaseCalibrator
        The fitted calibrator.
    n_features_in_ : int
        The number of features, if the estimator knows it.
    feature_names_in_ : array of str
        Their names, if the estimator was fitted on a data frame.

    References
    ----------
    Elkan, "The foundations of cost-sensitive learning", 2001.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import CostSensitiveClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> costs = CostMatrix.zero_one([0, 1]).with_reject(0.1, name="see a doctor")
    >>> CostSensitiveClassifier(GaussianNB(), costs).fit(X, y).predict(X[73:76]).tolist()
    ['see a doctor', 1, 0]
    """

    costs_: CostMatrix | None

    def __init__(
        self,
        estimator: Any = None,
        costs: CostMatrix | None = None,
        calibrator: BaseCalibrator | None = None,
        cv: Any = 5,
    ) -> None:
        super().__init__(estimator, calibrator, cv)
        self.costs = costs

    def _learned_from(self, classes: NDArray[Any]) -> dict[str, Any]:
        names = tuple(classes.tolist())
        costs = CostMatrix.zero_one(names) if self.costs is None else self.costs
        table = as_costs(costs, "costs", type(self).__name__)
        if table.classes is None and table.pos_label is None and not _is_order_known(names, table):
            rule, fix = "must name its classes", f"Use CostMatrix(..., classes={list(names)})"
            got = f"none for the labels {', '.join(map(repr, names[:5]))}"
            raise BadValueError("costs", type(self).__name__, rule, got, fix)
        is_text = isinstance((table.classes or (table.pos_label,))[0], str)
        if is_text and names == tuple(range(table.n_classes)):
            return {"costs_": _encoded(table)}
        return {"costs_": _named(table.for_classes(names, len(names)), names)}

    def predict(self, X: Any, row_costs: Any = None) -> NDArray[Any]:  # noqa: N803
        """Return the action of lowest expected cost for each row.

        Parameters
        ----------
        X : array
            Features.
        row_costs : dict, data frame or array, optional
            As for `expected_costs`.

        Returns
        -------
        array
            The class label if the action has its name, otherwise the name of the action.
        """
        costs = self._known_costs()
        return np.asarray(self._action_labels(costs)[self._actions(X, costs, row_costs)])

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
        row_costs : dict, data frame or array, optional
            As for `expected_costs`.

        Returns
        -------
        float
        """
        costs = self._known_costs()
        actions = self._actions(X, costs, row_costs)
        return -realized_cost(y, actions, costs, row_costs, sample_weight=sample_weight)

    def _actions(self, X: Any, costs: CostMatrix, row_costs: Any) -> IntArray:  # noqa: N803
        """Return the index of the action of lowest expected cost for each row."""
        outputs = Probabilities(self.predict_proba(X), self.classes_.tolist())
        return optimal_actions(outputs, costs, row_costs)

    def _known_costs(self) -> CostMatrix:
        """Return the costs in the order of the classes, or raise."""
        require_fitted(self, "predict")
        if self.costs_ is None:
            rule = f"must have the classes {tuple(self.classes_.tolist())}"
            got = f"{self.costs and (self.costs.classes or self.costs.pos_label)}"
            fix = "Fit on class names, or use CostMatrix(..., classes=[...]) with sorted names"
            raise BadValueError("costs", type(self).__name__, rule, got, fix)
        return self.costs_

    def _action_labels(self, costs: CostMatrix) -> NDArray[Any]:
        """Return the label of each action: a class label if it has that name."""
        number_of = {str(name): number for number, name in enumerate(self.classes_.tolist())}
        if all(action in number_of for action in costs.actions):
            return np.asarray(self.classes_[[number_of[name] for name in costs.actions]])
        known = {str(name): name for name in self.classes_.tolist()}
        return np.array([known.get(name, name) for name in costs.actions], dtype=object)


def _is_order_known(names: tuple[Any, ...], costs: CostMatrix) -> bool:
    """Whether columns without names can be told apart: by numbers, or because all are alike."""
    if not any(isinstance(name, str) for name in names):
        return True
    square, others = costs.array[: len(names)], costs.array[len(names) :]
    is_alike = np.unique(square[np.eye(*square.shape) == 0]).size <= 1
    is_alike &= np.unique(np.diag(square)).size <= 1 and not np.ptp(others, axis=1).any()
    return bool(is_alike) and not costs.columns


def _named(costs: CostMatrix, classes: tuple[Any, ...]) -> CostMatrix:
    """Return costs with class names for columns, and for actions that are only numbers."""
    if costs.classes is not None:
        return costs
    n_classes, actions = len(classes), list(costs.actions)
    if actions[:n_classes] == [str(number) for number in range(n_classes)]:
        actions[:n_classes] = [str(name) for name in classes]
    reject = None if costs.reject is None else actions[costs.reject]
    return CostMatrix(costs.cells, actions, classes, reject=reject, reviews=costs.reviews)


def _encoded(costs: CostMatrix) -> CostMatrix | None:
    """Return costs for codes instead of names: for scikit-learn, the positions of sorted names.

    None where the names are in another order, as the codes could be positions in that order, too.
    """
    names = [str(name) for name in costs.classes or ()]
    if not names or names != sorted(names):
        return None
    actions = [str(names.index(one)) if one in names else one for one in costs.actions]
    reject = None if costs.reject is None else actions[costs.reject]
    return CostMatrix(costs.cells, actions, range(len(names)), reject=reject, reviews=costs.reviews)
