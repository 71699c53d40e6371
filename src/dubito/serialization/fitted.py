"""Fitted attributes that declare how they are checked when read from a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, final

from dubito.serialization.fields import Check

ABSENT = object()


def fitted(check: Check, default: Any = ABSENT) -> Any:
    """Declare a fitted attribute of an estimator: one of its `fitted_fields`.

    Without a default, the attribute does not exist before `fit`.

    >>> from dubito.serialization.fields import number
    >>> from dubito.serialization.objects import Serializable
    >>> class Scaling(Serializable):
    ...     factor_: float = fitted(number(0))
    >>> list(Scaling.fitted_fields), hasattr(Scaling(), "factor_")
    (['factor_'], False)
    """
    return _Declared(check, default)


@final
class _Declared:
    """Adds a check to the fitted fields of a class, and leaves its place to the value."""

    def __init__(self, check: Check, default: Any) -> None:
        self.check, self.default = check, default

    def __set_name__(self, owner: Any, name: str) -> None:
        checks = {**vars(owner).get("fitted_fields", {}), name: self.check}
        owner.fitted_fields = MappingProxyType(checks)
        if self.default is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, self.default)
