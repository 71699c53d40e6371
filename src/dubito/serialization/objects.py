"""Objects as plain numbers, lists and names, and back: fitted estimators and frozen records."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, partialmethod
from importlib import import_module
from inspect import Parameter, isabstract, signature
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_type_hints

import numpy as np

from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import html_view, sentence
from dubito.serialization.fields import (
    RESTORE,
    Check,
    Entry,
    Omittable,
    declare,
    describe,
    read_fields,
    require_keys,
    scalar,
    states,
)

HOMES = ("dubito.calibrate", "dubito.doubt", "dubito.decide")  # whose public classes may be read
FORMAT = 1  # increases when files of older versions can no longer be read
HEADER = ("class", "format")
PARTS = (*HEADER, "params", "fitted")  # of an estimator
NOTE = "columns"  # of the file of a calibrator: those it was fitted to, which are not read here
MAX_DEPTH = 5  # objects nested in objects
VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)  # of a class without `__init__`
ROUTED = ("fit", "predict", "predict_proba", "score")  # methods that may take metadata
METADATA = ("sample_weight", "groups", "times")  # one value per row, which scikit-learn can route
OTHER_VERSION = "Use the version of dubito that wrote it"


class _Estimator:
    """Parameters as in scikit-learn, without the import of `BaseEstimator`.

    That takes longer than to decide thousands of rows.
    """

    if TYPE_CHECKING:  # as attributes of scikit-learn's estimators: which are learned is not known

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, **settings: Any) -> None:
        """Add `set_fit_request` and the like where a method takes metadata."""
        super().__init_subclass__(**settings)
        for method in ROUTED:
            if method in vars(cls) and _metadata_of(cls, method):
                setattr(cls, f"set_{method}_request", partialmethod(_Estimator._request, method))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if `deep`, also those of nested estimators.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of nested estimators, as `name__parameter`.

        Returns
        -------
        dict
            The settings by name, as in scikit-learn.
        """
        params = {name: getattr(self, name) for name in self._get_param_names()}
        nested = {name: one for name, one in params.items() if isinstance(one, _Estimator)}
        inner = {
            f"{name}__{key}": value
            for name, one in nested.items()
            for key, value in one.get_params().items()
        }
        return {**params, **inner} if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of nested estimators as `name__parameter`.

        Parameters
        ----------
        **params : any
            New values by parameter name.

        Returns
        -------
        estimator
            The estimator itself.
        """
        from sklearn.base import BaseEstimator

        BaseEstimator.set_params(self, **params)
        return self

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(_defaults_of(cls))

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)

    def get_metadata_routing(self) -> Any:
        """Return which metadata each method requests, for scikit-learn's metadata routing.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRequest
        """
        from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

        if (stored := vars(self).get("_metadata_request")) is not None:
            return get_routing_for_object(stored)
        requests = MetadataRequest(owner=type(self).__name__)
        for method in ROUTED:
            for name in _metadata_of(type(self), method):
                getattr(requests, method).add_request(param=name, alias=None)
        return requests

    def _request(self, method: str, **requests: bool | str | None) -> Self:
        """Request metadata of a method: True, False, None (an error if given) or another name."""
        from sklearn import get_config

        caller = f"{type(self).__name__}.set_{method}_request"
        if not get_config()["enable_metadata_routing"]:
            fix = "Use sklearn.set_config(enable_metadata_routing=True)"
            raise BadValueError("", caller, "needs metadata routing", "it disabled", fix)
        known = _metadata_of(type(self), method)
        routing = self.get_metadata_routing()
        for name, alias in requests.items():
            if name not in known:
                rule = f"must be among {', '.join(known)}"
                raise BadTypeError("requests", caller, rule, repr(name), f"Pass {known[0]}=True")
            getattr(routing, method).add_request(param=name, alias=alias)
        self._metadata_request = routing
        return self

    def _repr_html_(self) -> str | None:
        from sklearn import get_config
        from sklearn.utils import estimator_html_repr

        if get_config()["display"] != "diagram":
            return None
        if not hasattr(self, "fit"):
            return html_view(repr(self))
        is_fitted = self.__sklearn_is_fitted__() and hasattr(self, "summary")
        diagram: str = estimator_html_repr(self)
        return html_view(sentence(self.summary())) + diagram if is_fitted else diagram

    def __repr__(self) -> str:
        defaults, params = _defaults_of(type(self)), self.get_params(deep=False)
        shown = {name: repr(value) for name, value in params.items()}
        changed = [f"{k}={text}" for k, text in shown.items() if text != repr(defaults[k])]
        return f"{type(self).__name__}({', '.join(changed)})"


class Serializable(_Estimator, ABC):
    """An estimator that can be written to JSON: its parameters, and attributes ending in `_`.

    Subclasses declare the fields of fitted attributes in `fitted_fields`, and of parameters that
    are no scalars in `param_fields`; fields of base classes are inherited and read first. Rules
    between fields belong in `_check_params` and `_check_fitted`. Nothing else is written or
    pickled.
    """

    fitted_fields: ClassVar[Mapping[str, Check]] = declare()
    param_fields: ClassVar[Mapping[str, Check]] = declare()
    first_method: ClassVar[str] = "fit"  # which has to be called before others

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters and fitted attributes as plain values, ready for JSON.

        Returns
        -------
        dict
            Numbers, strings, lists and dicts only.
        """
        self._require_fitted("to_dict")
        return _estimator_to_dict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the estimator that `to_dict` wrote; every field is checked.

        An abstract class reads any of its subclasses.

        Parameters
        ----------
        values : dict
            What `to_dict` returned, as it is or read from JSON.

        Returns
        -------
        estimator
            A fitted estimator of the class that `values` names.
        """
        return _read_estimator(values, cls, Entry("values", f"{cls.__name__}.from_dict", {}))

    def _check_params(self) -> None:
        """Raise if a parameter is invalid, when fitting as when reading."""

    def _check_fitted(self, entry: Entry) -> None:
        """Raise if fitted attributes contradict each other; each was checked by itself before."""

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _forget(self) -> None:
        """Delete fitted attributes, and what was computed from them and cached."""
        kind = type(self)
        for name in [*vars(self)]:
            if name.endswith("_") or isinstance(getattr(kind, name, None), cached_property):
                delattr(self, name)

    @contextmanager
    def _fitting(self, **attributes: Any) -> Iterator[None]:
        """Set the first attributes of a new fit; forget all of them if what follows fails."""
        self._forget()
        for name, value in attributes.items():
            setattr(self, name, value)
        try:
            self._check_params()
            yield
        except BaseException:
            self._forget()
            raise

    def _require_fitted(self, method: str) -> str:
        """Return what errors call a method, or raise unless the estimator is fitted."""
        name = type(self).__name__
        if not self.__sklearn_is_fitted__():
            from dubito.serialization.unfitted import UnfittedEstimatorError

            raise UnfittedEstimatorError(name, method, self.first_method)
        return f"{name}.{method}"

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._learned())

    def __getstate__(self) -> dict[str, Any]:
        requests = {k: v for k, v in vars(self).items() if k == "_metadata_request"}
        return {**self.get_params(deep=False), **self._learned(), **requests}


class Record:
    """A frozen value object that declares its fields.

    `to_dict` starts with the class and the format, unless the object is only ever a part of
    another (`has_header = False`). Subclasses may override `_values` (what is written) and
    `_from_values` (how the object is made of checked values, and which contradict each other).
    """

    __slots__ = ()

    fields: ClassVar[Mapping[str, Check]] = declare()
    type_checks: ClassVar[Mapping[Any, Check]] = {}
    has_header: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON.

        Returns
        -------
        dict
            Numbers, strings, lists and dicts only.
        """
        header = {"class": type(self).__name__, "format": FORMAT} if self.has_header else {}
        return {**header, **_to_plain(self._values())}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Return the object that `to_dict` wrote; every field is checked.

        Parameters
        ----------
        values : dict
            What `to_dict` returned, as it is or read from JSON.

        Returns
        -------
        object
            An equal object of this class.
        """
        return cls._read(values, Entry("values", f"{cls.__name__}.from_dict", {}))

    @classmethod
    def _read(cls, values: Any, entry: Entry) -> Self:
        if cls.has_header:
            name = _read_header(values, entry)
            if not isinstance(name, str) or name != cls.__name__:
                raise _another_class(cls, name, entry)
            values = {name: value for name, value in values.items() if name not in HEADER}
        return cls._from_values(read_fields(values, cls.fields, entry), entry)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.fields}

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> Self:
        try:
            return cls(**values)
        except (BadTypeError, BadValueError) as error:
            raise entry.at(error.argument).error(error.rule, error.got) from error


RecordKind = TypeVar("RecordKind", bound=type[Record])


def stores_fields(kind: RecordKind) -> RecordKind:
    """Decorate a record: files hold its fields in order, each `Annotated` by its check.

    A field without one has the check of its type in `type_checks`, if that is there.

    >>> from dubito.decide import FBeta
    >>> list(FBeta.fields)
    ['beta', 'average']
    """
    checks = dict[str, Check]()
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            checks[name] = hint.__metadata__[0]
        elif hint in kind.type_checks:
            checks[name] = kind.type_checks[hint]
    kind.fields = declare(**checks)
    return kind


Kind = TypeVar("Kind", bound=Serializable)


def clone(estimator: Kind) -> Kind:
    """Return an unfitted estimator with the same parameters, as `sklearn.base.clone` does."""
    params = estimator.get_params(deep=False)
    return type(estimator)(**{name: _copy(value) for name, value in params.items()})


def _copy(value: Any) -> Any:
    """Return a copy of a parameter, in which nested estimators are not fitted."""
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    return clone(value) if isinstance(value, Serializable) else deepcopy(value)


def _metadata_of(kind: type[_Estimator], method: str) -> tuple[str, ...]:
    """Return the metadata that a method takes."""
    code = getattr(getattr(kind, method, None), "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in METADATA if name in names)


def _defaults_of(kind: type[_Estimator]) -> dict[str, Any]:
    """Return the defaults of the parameters of an estimator, by name."""
    if kind.__init__ is object.__init__:  # whose signature Python would have to parse
        return {}
    parameters = list(signature(kind.__init__).parameters.values())[1:]
    return {one.name: one.default for one in parameters if one.kind not in VARIABLE}


def estimator(kind: type[Serializable], *, is_fitted: bool = True) -> Check:
    """Check for an estimator of a class; as a parameter it need not be fitted."""

    @states(lambda: {"estimator": kind, "is_fitted": is_fitted})
    def check(value: Any, entry: Entry) -> Serializable:
        if entry.depth == MAX_DEPTH:
            raise entry.error(f"nested at most {MAX_DEPTH} levels deep", "one more")
        inner = replace(entry, beside={}, depth=entry.depth + 1)
        return _read_estimator(value, kind, inner, is_fitted=is_fitted)

    return check


def record_of(kind: type[Record]) -> Check:
    """Check for a record of a class."""
    accepted = states(lambda: {"record": kind})
    return accepted(lambda value, entry: kind._read(value, entry))


def _read_estimator(values: Any, kind: type[Kind], entry: Entry, *, is_fitted: bool = True) -> Kind:
    """Return the estimator of a dict, or raise at the first entry that is wrong."""
    found = _class_of(values, kind, entry)
    checks = param_checks(found)
    params, place = values["params"], entry.at("params")
    require_keys(params, checks, place)
    result = found(**{name: checks[name](params[name], place.at(name)) for name in params})
    result._check_params()
    if is_fitted or values["fitted"]:
        place = entry.at("fitted")
        learned = read_fields(values["fitted"], inherited(found, "fitted_fields"), place)
        for name, value in learned.items():
            setattr(result, name, value)
        result._check_fitted(place)
    return result


def param_checks(kind: type[Serializable]) -> dict[str, Check]:
    """Return the check of each parameter of an estimator: a scalar unless declared otherwise."""
    own = inherited(kind, "param_fields")
    return {name: own.get(name, Omittable(scalar)) for name in kind._get_param_names()}


def inherited(kind: type[Serializable], what: str) -> dict[str, Check]:
    """Return the declared fields of a class and of its base classes, theirs first."""
    parents = reversed(kind.__mro__)
    return {name: one for cls in parents for name, one in vars(cls).get(what, {}).items()}


def _read_header(values: Any, entry: Entry) -> Any:
    """Return the class that a dict names, or raise where it has none or another format."""
    is_dict = isinstance(values, dict)
    version = values.get("format", FORMAT) if is_dict else FORMAT
    if type(version) is not int or version != FORMAT:
        rule, got = f"must have format {FORMAT}", f"format {describe(version)}"
        raise BadTypeError(entry.name, entry.caller, rule, got, OTHER_VERSION)
    if not is_dict or not {*HEADER} <= values.keys():
        rule, got = "must be a dict that `to_dict` returned", describe(values)
        if is_dict:
            got += f" without the key {next(key for key in HEADER if key not in values)!r}"
        raise BadTypeError(entry.name, entry.caller, rule, got, RESTORE)
    return values["class"]


def _class_of(values: Any, kind: type[Kind], entry: Entry) -> type[Kind]:
    """Return the class that wrote a dict, or raise where it is another than wanted."""
    name = _read_header(values, entry)
    homes = map(import_module, HOMES if isinstance(name, str) else ())
    found = next((getattr(home, name) for home in homes if name in home.__all__), None)
    if not isinstance(found, type) or not issubclass(found, Serializable | Record):
        found = None
    if found is None or isabstract(found):
        rule = "must be of a known class"
        raise BadValueError(entry.name, entry.caller, rule, describe(name), OTHER_VERSION)
    if not issubclass(found, kind):
        raise _another_class(kind, name, entry)
    require_keys(values, {**dict.fromkeys(PARTS, scalar), NOTE: Omittable(scalar)}, entry)
    for part in PARTS[2:]:
        if not isinstance(values[part], dict):
            raise entry.at(part).error("a dict", describe(values[part]))
    return found


def _another_class(kind: type[Any], name: Any, entry: Entry) -> BadValueError:
    """Return the error of values that another class wrote."""
    rule, fix = f"must be a {kind.__name__}", RESTORE
    if isinstance(name, str) and name.isidentifier() and not entry.depth:
        fix = f"Pass what {kind.__name__}.to_dict returned, or use {name}.from_dict"
    return BadValueError(entry.name, entry.caller, rule, describe(name), fix)


def _estimator_to_dict(value: Serializable) -> dict[str, Any]:
    """Return an estimator, fitted or not, as plain values."""
    params, learned = value.get_params(deep=False), value._learned()
    order = [name for name in inherited(type(value), "fitted_fields") if name in learned]
    return {
        "class": type(value).__name__,
        "format": FORMAT,
        "params": {name: _to_plain(one) for name, one in params.items() if _is_plain(one)},
        "fitted": _to_plain({name: learned[name] for name in [*order, *learned]}),
    }


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a parameter; others, such as splitters, matter only for fitting."""
    if isinstance(value, list | tuple | np.ndarray):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, Serializable | bool | int | float | str | np.generic)


def _to_plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, Serializable):
        return _estimator_to_dict(value)
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    return value
