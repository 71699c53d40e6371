"""A scikit-learn classifier whose probabilities are calibrated."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self, cast, final

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, has_fit_parameter

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.calibrator import FLOOR, BaseCalibrator, not_a_calibrator
from dubito.calibrate.cross_validation import count_group_folds
from dubito.data.batch import as_weights
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.formatting import html_view, sentence
from dubito.outputs import Logits, Probabilities
from dubito.serialization.unfitted import require_fitted

NAME = "CalibratedClassifier"


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A scikit-learn classifier with calibrated probabilities.

    Clones of the estimator are fitted without one fold each, the calibrator on their outputs for
    the fold left out; then the estimator is fitted on all rows. The result is one model, not an
    ensemble over folds: prediction costs the same, and the calibrator can be inspected.

    Parameters
    ----------
    estimator : scikit-learn classifier, optional
        `LogisticRegression()` by default. Wrap a fitted classifier in
        `sklearn.frozen.FrozenEstimator`: then all rows, which must be new to it, calibrate it.
    calibrator : BaseCalibrator, optional
        `AutoCalibrator()` by default.
    cv : int, scikit-learn splitter or list of splits
        Number of stratified folds (of whole groups, at most one per group), or how to split. Folds
        run in parallel inside `joblib.parallel_config(n_jobs=...)`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels, in the order of the columns.
    estimator_ : scikit-learn classifier
        The estimator fitted on all rows.
    calibrator_ : BaseCalibrator
        The fitted calibrator.
    n_features_in_ : int
        The number of features, if the estimator knows it.
    feature_names_in_ : array of str
        Their names, if the estimator was fitted on a data frame.

    Examples
    --------
    >>> from dubito.calibrate import CalibratedClassifier
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from dubito.calibrate import TemperatureScaling
    >>> X, y = load_iris(return_X_y=True)
    >>> CalibratedClassifier(SVC(), TemperatureScaling()).fit(X, y).predict_proba(X[:1]).round(2)
    array([[0.96, 0.04, 0.  ]])
    """

    classes_: NDArray[Any]
    estimator_: Any
    calibrator_: BaseCalibrator

    def __init__(
        self, estimator: Any = None, calibrator: BaseCalibrator | None = None, cv: Any = 5
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator and the calibrator.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Features, as the estimator takes them.
        y : array of shape (n_rows,)
            Labels.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights, passed to the estimator if it takes any.
        groups : array of shape (n_rows,), optional
            Rows of one group stay in one fold.
        **fit_params : dict
            With metadata routing enabled, further metadata that the estimator or the splitter
            requests. Then they get `sample_weight` and `groups` also only if they request them.

        Returns
        -------
        CalibratedClassifier
            The fitted classifier itself.
        """
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        features, _, groups = indexable(X, labels, groups)
        weight = None
        if sample_weight is not None:
            # A copy: not every estimator takes weights that are read-only.
            weight = as_weights(sample_weight, labels.size, NAME).copy()
        estimator, calibrator = self._base(), self._base_calibrator()
        routed = self._routed({"sample_weight": weight, "groups": groups, **fit_params})
        data = _TrainingRows(features, labels, weight, routed and routed.get("estimator", {}))
        is_frozen = isinstance(estimator, FrozenEstimator)
        if is_frozen:
            check_is_fitted(estimator)
        classes = np.asarray(estimator.classes_) if is_frozen else np.unique(labels)
        if classes.size < 2:
            rule, fix = "must have at least 2 classes", "Add rows of another class"
            raise BadValueError("y", NAME, rule, f"1 class, {classes.tolist()}", fix)
        learned = self._learned_from(classes)
        if is_frozen:
            fitted = estimator
            rows, outputs = np.arange(labels.size), _model_outputs(fitted, features, classes)
        else:
            if routed is None and weight is not None and _weight_argument(estimator) is None:
                kind = type(estimator).__name__
                text = f"{NAME}: {kind}.fit takes no sample_weight; only the calibrator uses it."
                warnings.warn(text, DubitoWarning, stacklevel=2)
            splits = _make_splits(self.cv, data, groups, routed and routed["splitter"])
            rows, outputs = _held_out_outputs(estimator, data, splits, classes)
            fitted = data.fit(estimator)
        weight = None if weight is None else weight[rows]
        makes_folds = groups is not None and has_fit_parameter(calibrator, "groups")
        own_groups = {"groups": np.asarray(groups)[rows]} if makes_folds else {}
        calibrator.fit(outputs, labels[rows], weight, **own_groups)
        self.classes_, self.estimator_, self.calibrator_ = classes, fitted, calibrator
        self.__dict__.update(learned)
        return self

    def _learned_from(self, classes: NDArray[Any]) -> dict[str, Any]:
        """Return further attributes that the classes determine, before anything is fitted."""
        return {}

    def _routed(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Return the metadata of the estimator and of the splitter; None without routing."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **metadata)
            of_estimator = dict(routed.get("estimator", {}).get("fit", {}))
            return {"estimator": of_estimator, "splitter": dict(routed["splitter"]["split"])}
        others = [name for name in metadata if name not in ("sample_weight", "groups")]
        if others:
            rule, fix = "needs metadata routing", "Use set_config(enable_metadata_routing=True)"
            raise BadTypeError(others[0], f"{NAME}.fit", rule, "it disabled", fix)
        return None

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return calibrated probabilities.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Features.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities, in the order of `classes_`.
        """
        require_fitted(self, "predict_proba")
        return self.calibrator_._predict_proba(_model_outputs(self.estimator_, X, self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class, which may differ from the estimator's prediction.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Features.

        Returns
        -------
        array of shape (n_rows,)
            Class labels.
        """
        codes = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def summary(self) -> str:
        """Return the parameters of the calibrator in words.

        Returns
        -------
        str
            One sentence.
        """
        require_fitted(self, "summary")
        return self.calibrator_.summary()

    @property
    def n_features_in_(self) -> int:
        """Number of features, if the estimator knows it."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Feature names, if the estimator knows them."""
        return np.asarray(self.estimator_.feature_names_in_)

    def get_metadata_routing(self) -> Any:
        """Return where metadata of `fit` goes: here, to the estimator, and to the splitter.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        estimator = _default_estimator() if self.estimator is None else self.estimator
        if not isinstance(estimator, FrozenEstimator):  # which is not fitted again
            router.add(estimator=estimator, method_mapping=mapping)
        mapping = MethodMapping().add(caller="fit", callee="split")
        return router.add(splitter=_as_splitter(self.cv), method_mapping=mapping)

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's diagram, below what calibration does once it is fitted."""
        fitted = html_view(sentence(self.summary())) if hasattr(self, "classes_") else ""
        return fitted + str(super()._repr_html_inner())

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**settings)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        tags.classifier_tags.multi_label = False
        return tags

    def _base(self) -> Any:
        """Return the estimator, or the default."""
        if self.estimator is None:
            return _default_estimator()
        is_instance = hasattr(self.estimator, "fit") and not isinstance(self.estimator, type)
        if not (is_instance and is_classifier(self.estimator)):
            rule, fix = "must be a scikit-learn classifier", "Pass LogisticRegression()"
            raise BadTypeError("estimator", NAME, rule, repr(self.estimator), fix)
        return self.estimator

    def _base_calibrator(self) -> BaseCalibrator:
        """Return an unfitted calibrator."""
        if self.calibrator is None:
            from dubito.calibrate.auto import AutoCalibrator

            return AutoCalibrator()
        if not isinstance(self.calibrator, BaseCalibrator):
            rule, fix = "must be a calibrator of dubito", "Pass TemperatureScaling()"
            raise not_a_calibrator(self.calibrator, NAME, rule, fix)
        return cast(BaseCalibrator, clone(self.calibrator))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _TrainingRows:
    """Features of any indexable kind, labels, weights, and metadata that the estimator requests.

    Without metadata routing (None) the estimator gets the weights if it takes any.
    """

    features: Any
    labels: NDArray[Any]
    weight: FloatArray | None
    routed: dict[str, Any] | None = None

    def fit(self, estimator: Any, rows: IntArray | None = None) -> Any:
        """Return a clone of the estimator, fitted on some rows or on all."""
        features, labels, params = self.features, self.labels, self.routed
        if params is None:
            argument = None if self.weight is None else _weight_argument(estimator)
            params = {argument: self.weight} if argument else {}
        if rows is not None:
            params = _check_method_params(features, params, indices=rows)
            features, labels = _safe_split(estimator, features, labels, rows)
        return clone(estimator).fit(features, labels, **params)


def _default_estimator() -> LogisticRegression:
    """Return the default estimator, which requests weights."""
    default = LogisticRegression()
    if get_config()["enable_metadata_routing"]:
        default.set_fit_request(sample_weight=True)
    return default


def _held_out_outputs(
    estimator: Any,
    data: _TrainingRows,
    splits: list[tuple[IntArray, IntArray]],
    classes: NDArray[Any],
) -> tuple[IntArray, Logits | Probabilities]:
    """Return the held-out rows, and the outputs of models that were not fitted on them."""
    run = delayed(_held_out_fold)
    folds = Parallel()(run(estimator, data, train, test, classes) for train, test in splits)
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in folds)])
    n_unseen = sum(test.size for _, test in splits) - rows.size
    fix = "Pass cv=StratifiedKFold(5, shuffle=True)"
    if rows.size == 0:
        rule = "must hold out rows of classes that it trains on"
        raise BadValueError("cv", NAME, rule, f"{len(splits)} splits with no such row", fix)
    if n_unseen:
        text = (
            f"{NAME}: {n_unseen:,} held-out rows are not used to calibrate, as the model of their "
            f"fold was not trained on their class. {fix}."
        )
        warnings.warn(text, DubitoWarning, 3)
    parts = [outputs for _, outputs in folds if outputs is not None]
    return rows, type(parts[0])(np.concatenate([part.array for part in parts]), classes)


def _held_out_fold(
    estimator: Any, data: _TrainingRows, train: IntArray, test: IntArray, classes: NDArray[Any]
) -> tuple[IntArray, Logits | Probabilities | None]:
    """Return the rows of one fold whose class the other rows have, and the outputs for them.

    A model that was not trained on a class is certain to be wrong there; the final one is not.
    """
    model = data.fit(estimator, train)
    rows = test[np.isin(data.labels[test], model.classes_)]
    if rows.size == 0:
        return rows, None
    features, _ = _safe_split(estimator, data.features, None, rows, train)
    return rows, _model_outputs(model, features, classes)


def _model_outputs(model: Any, features: Any, classes: NDArray[Any]) -> Logits | Probabilities:
    """Return the outputs of a fitted model, with a column for each of `classes`."""
    is_score = hasattr(model, "decision_function")
    if not (is_score or hasattr(model, "predict_proba")):
        rule, fix = "must have decision_function or predict_proba", "Pass another estimator"
        raise BadTypeError("estimator", NAME, rule, type(model).__name__, fix)
    array = np.asarray((model.decision_function if is_score else model.predict_proba)(features))
    if is_score and array.ndim == 1:
        array = np.stack([np.zeros_like(array), array], axis=1)
    known, names = np.asarray(model.classes_).tolist(), classes.tolist()
    # The number of columns does not tell: three classes have three pairs.
    is_pairwise = getattr(_final_model(model), "decision_function_shape", None) == "ovo"
    if array.shape[1:] != (len(known),) or (is_pairwise and len(known) > 2):
        rule, fix = "must have one output per class", "Set decision_function_shape='ovr'"
        got = "scores of pairs of classes" if is_pairwise else f"outputs of shape {array.shape}"
        raise BadValueError("estimator", NAME, rule, got, fix)
    if known != names:
        # Below the lowest by as much as probabilities can differ: never predicted, yet moderate.
        lowest = array.min(axis=1, keepdims=True) + np.log(FLOOR) if is_score else 0.0
        aligned = np.full((array.shape[0], len(names)), lowest, np.result_type(array, np.float32))
        aligned[:, [names.index(name) for name in known]] = array
        array = aligned
    return (Logits if is_score else Probabilities)(array, classes)


def _as_splitter(cv: Any, labels: NDArray[Any] | None = None) -> Any:
    """Return a splitter; of a number of folds a stratified one, if the labels are classes."""
    if isinstance(cv, str):
        fix = "Wrap a fitted model in FrozenEstimator(model)"
        raise BadValueError("cv", NAME, "must be a number, a splitter or splits", repr(cv), fix)
    return check_cv(cv, labels, classifier=True)


def _make_splits(
    cv: Any, data: _TrainingRows, groups: Any, routed: dict[str, Any] | None
) -> list[tuple[IntArray, IntArray]]:
    """Return the training and test rows of each fold."""
    params = {"groups": groups} if routed is None else routed
    if isinstance(cv, Integral) and groups is not None:
        cv = StratifiedGroupKFold(count_group_folds(np.asarray(groups), int(cv), NAME))
        params = {"groups": groups}
    rows, splitter = np.arange(data.labels.size), _as_splitter(cv, data.labels)
    splits = splitter.split(data.features, data.labels, **params)
    return [(rows[train], rows[test]) for train, test in splits]


def _final_model(model: Any) -> Any:
    """Return the model inside searches and pipelines that gives the outputs."""
    if hasattr(model, "best_estimator_"):
        return _final_model(model.best_estimator_)
    return _final_model(model.steps[-1][1]) if hasattr(model, "named_steps") else model


def _weight_argument(estimator: Any) -> str | None:
    """Return the name of the weights in `fit`, None if it takes none."""
    if isinstance(estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        inner = _weight_argument(last)
        return None if inner is None else f"{name}__{inner}"
    is_taken = isinstance(estimator, Pipeline) or has_fit_parameter(estimator, "sample_weight")
    return "sample_weight" if is_taken else None
