"""Fitted estimators as plain numbers, lists and names, and back."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from inspect import isabstract
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.serialization.fields import (
    AS_WRITTEN,
    Check,
    Entry,
    Maybe,
    entries,
    plain_setting,
    require_keys,
    shown,
)

HOMES = ("dubito.calibrate", "dubito.doubt", "dubito.decide")  # whose public classes may be read
FORMAT = 1  # of `to_dict`; goes up when what older versions wrote can no longer be read as it is
PARTS = ("kind", "format", "settings", "learned")
DEEPEST = 4  # things inside things


class BaseKept(BaseEstimator, ABC):
    """Settings and what was learned: names that end in `_`. All else is neither kept nor pickled.

    What reading demands of each entry is said by `learned_checks`, and for settings that are no
    single number or name by `setting_checks`, those of parents first; of entries together by
    `_require_learned`.
    """

    learned_checks: ClassVar[Mapping[str, Check]] = entries()
    setting_checks: ClassVar[Mapping[str, Check]] = entries()

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and what was learned as plain numbers and lists, ready for JSON."""
        self._require_fitted("to_dict")
        return _plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return what `to_dict` wrote, all of it checked; of an abstract class, any of its kind."""
        return _read(values, cls, Entry("values", f"{cls.__name__}.from_dict", {}))

    def _require_settings(self) -> None:
        """Raise where a setting is none, in the fit as in reading."""

    def _require_learned(self, entry: Entry) -> None:
        """Raise where things learned do not go together; each by itself was checked before."""

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _forget(self) -> None:
        for name in set(vars(self)) - set(self.get_params(deep=False)):
            delattr(self, name)

    def _require_fitted(self, method: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise UnfittedError(type(self).__name__, method)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._learned())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.get_params(deep=False), **self._learned()}


Kind = TypeVar("Kind", bound=BaseKept)


def kept(kind: type[BaseKept], *, is_fitted: bool = True) -> Check:
    """Check for something kept of a kind; a setting need not be fitted."""

    def check(value: Any, entry: Entry) -> BaseKept:
        if entry.depth == DEEPEST:
            raise entry.refused(f"at most {DEEPEST} levels deep", "one more")
        inner = replace(entry, beside={}, depth=entry.depth + 1)
        return _read(value, kind, inner, is_fitted=is_fitted)

    return check


def _read(values: Any, kind: type[Kind], entry: Entry, *, is_fitted: bool = True) -> Kind:
    """Return something of a kind that `_plain` wrote, or raise at the first entry that is wrong."""
    found = _kind_named(values, kind, entry)
    result = found(**_settings_of(found, values["settings"], entry.at("settings")))
    result._require_settings()
    if is_fitted or values["learned"]:
        place = entry.at("learned")
        checks = _checks_of(found, "learned_checks")
        require_keys(values["learned"], checks, place)
        beside: dict[str, Any] = {}
        for name in (name for name in checks if name in values["learned"]):
            at = replace(place.at(name), beside=beside)
            beside[name] = checks[name](values["learned"][name], at)
            setattr(result, name, beside[name])
        result._require_learned(place)
    return result


def _settings_of(kind: type[BaseKept], values: Any, entry: Entry) -> dict[str, Any]:
    """Return the settings to make something with; those that only matter for a fit may lack."""
    own = _checks_of(kind, "setting_checks")
    checks = {name: own.get(name, Maybe(plain_setting)) for name in kind._get_param_names()}
    require_keys(values, checks, entry)
    return {name: checks[name](value, entry.at(name)) for name, value in values.items()}


def _checks_of(kind: type[BaseKept], what: str) -> dict[str, Check]:
    """Return the checks of a class and those of its parents, theirs first."""
    parents = reversed(kind.__mro__)
    return {name: one for cls in parents for name, one in vars(cls).get(what, {}).items()}


def _kind_named(values: Any, kind: type[Kind], entry: Entry) -> type[Kind]:
    """Return the class that wrote `values`, or raise where it is not what was asked for."""
    newer = "the version of dubito that wrote it"
    version = values.get("format", FORMAT) if isinstance(values, dict) else FORMAT
    if type(version) is not int or version != FORMAT:
        got = f"format {shown(version)}"
        raise BadTypeError(entry.name, entry.caller, "what `to_dict` wrote", got, newer)
    if not (isinstance(values, dict) and all(isinstance(values.get(p), dict) for p in PARTS[2:])):
        rule, got, fix = "what `to_dict` wrote", f"a {type(values).__name__}", "`fitted.to_dict()`"
        raise BadTypeError(entry.name, entry.caller, rule, got, fix)
    require_keys(values, dict.fromkeys(PARTS, plain_setting), entry)
    name = values["kind"]
    homes = map(import_module, HOMES if isinstance(name, str) else ())
    found = next((getattr(home, name) for home in homes if name in home.__all__), None)
    if not (isinstance(found, type) and issubclass(found, BaseKept)) or isabstract(found):
        raise BadValueError(entry.name, entry.caller, "of a known kind", shown(name), newer)
    if not issubclass(found, kind):
        rule = f"what {kind.__name__} wrote"
        fix = AS_WRITTEN if entry.depth else f"{name}.from_dict"
        raise BadValueError(entry.name, entry.caller, rule, shown(name), fix)
    return found


def _plain(kept: BaseKept) -> dict[str, Any]:
    """Return something, fitted or not, as what JSON holds."""
    settings = kept.get_params(deep=False)
    return {
        "kind": type(kept).__name__,
        "format": FORMAT,
        "settings": {
            name: _to_plain(value) for name, value in settings.items() if _is_plain(value)
        },
        "learned": _to_plain(kept._learned()),
    }


def _is_plain(value: Any) -> bool:
    """Tell a setting that JSON can hold from one that only matters while fitting: a splitter."""
    if isinstance(value, list | tuple | np.ndarray):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, BaseKept | bool | int | float | str | np.generic)


def _to_plain(value: Any) -> Any:
    """Return a setting, or something learned, as what JSON holds."""
    if isinstance(value, BaseKept):
        return _plain(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    return value
