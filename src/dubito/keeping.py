"""What is fitted, kept as plain numbers, lists and names, and made of them again."""

from __future__ import annotations

from abc import ABC
from importlib import import_module
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dubito.errors import BadTypeError, BadValueError, UnfittedError

__all__ = ["AbstractKept"]

HOMES = (
    "dubito.calibrate",
    "dubito.decide",
    "dubito.doubt",
)  # packages whose public classes may be read
FORMAT = 1  # of `to_dict`; goes up when what older versions wrote can no longer be read as it is


class AbstractKept(BaseEstimator, ABC):
    """Settings and what was learnt: names that end in `_`. All else is neither kept nor pickled."""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and what was learnt as plain numbers and lists, ready for JSON."""
        self._require_fitted("to_dict")
        return plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return what `to_dict` wrote; of an abstract class, any of its kind."""
        kind = kind_named(values, cls)
        result = kind(**{name: revived(value) for name, value in values["settings"].items()})
        for name, value in values["learned"].items():
            is_names = name == "classes_" and value is not None
            setattr(result, name, tuple(value) if is_names else revived(value))
        return result

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


def kind_named(values: Any, kind: type[AbstractKept]) -> type[AbstractKept]:
    """Return the class that wrote `values`, or raise where it is not what was asked for."""
    caller = f"{kind.__name__}.from_dict"
    parts = ("settings", "learned")
    is_whole = isinstance(values, dict) and all(isinstance(values.get(p), dict) for p in parts)
    if not is_whole or values.get("format") != FORMAT:
        rule, fix = "what `to_dict` wrote", "`fitted.to_dict()`"
        got = f"a {type(values).__name__}"
        if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
            got, fix = f"format {values['format']!r}", "the version of dubito that wrote it"
        raise BadTypeError("values", caller, rule, got, fix)
    name = str(values.get("kind"))
    homes = [import_module(home) for home in HOMES]
    found = next((getattr(home, name) for home in homes if name in home.__all__), None)
    if not (isinstance(found, type) and issubclass(found, AbstractKept)):
        fix = "the version of dubito that wrote it"
        raise BadValueError("values", caller, "of a known kind", repr(name), fix)
    if not issubclass(found, kind):
        rule = f"what {kind.__name__} wrote"
        raise BadValueError("values", caller, rule, repr(name), f"{name}.from_dict")
    return found


def plain(kept: AbstractKept) -> dict[str, Any]:
    """Return something, fitted or not, as what JSON holds."""
    settings = kept.get_params(deep=False)
    return {
        "kind": type(kept).__name__,
        "format": FORMAT,
        "settings": {name: to_plain(value) for name, value in settings.items() if is_plain(value)},
        "learned": to_plain(kept._learned()),
    }


def is_plain(value: Any) -> bool:
    """Tell a setting that JSON can hold from one that only matters while fitting: a splitter."""
    if isinstance(value, list | tuple | np.ndarray):
        return all(is_plain(entry) for entry in value)
    return value is None or isinstance(value, AbstractKept | bool | int | float | str | np.generic)


def to_plain(value: Any) -> Any:
    """Return a setting, or something learned, as what JSON holds."""
    if isinstance(value, AbstractKept):
        return plain(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return value


def revived(value: Any) -> Any:
    """Return what `to_plain` made plain: numbers as arrays, what is fitted as it was."""
    if isinstance(value, dict):
        if value.get("format") == FORMAT and "kind" in value:
            return AbstractKept.from_dict(value)
        return {name: revived(entry) for name, entry in value.items()}
    if isinstance(value, list):
        lengths = {len(entry) if isinstance(entry, list) else -1 for entry in value}
        is_regular = len(lengths) == 1 and not any(isinstance(v, dict | str) for v in value)
        return np.array(value) if is_regular else [revived(entry) for entry in value]
    return value
