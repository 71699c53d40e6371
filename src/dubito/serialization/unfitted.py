"""Errors of unfitted estimators that scikit-learn knows; loaded only where one is raised."""

from typing import Any, final

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dubito.errors import UnfittedError


@final
class UnfittedEstimatorError(UnfittedError, NotFittedError):
    """An estimator that was used before `fit`; also a `NotFittedError` of scikit-learn."""


def require_fitted(estimator: Any, method: str) -> None:
    """Raise unless an estimator of scikit-learn's kind is fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise UnfittedEstimatorError(type(estimator).__name__, method) from None
