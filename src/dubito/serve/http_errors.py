"""`HTTPError`: an error that the service answers with an HTTP status."""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from typing import Any, final

from dubito.errors import DubitoError

UNAUTHORIZED = HTTPStatus.UNAUTHORIZED.value
FORBIDDEN = HTTPStatus.FORBIDDEN.value
NOT_FOUND = HTTPStatus.NOT_FOUND.value
NOT_ALLOWED = HTTPStatus.METHOD_NOT_ALLOWED.value
CONFLICT = HTTPStatus.CONFLICT.value
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE.value
TOO_LARGE = 413
INVALID = 422
MAX_SHOWN = 50  # characters of a value in a message


@final
class HTTPError(DubitoError, ValueError):
    """A request that cannot be fulfilled: the status, the problem, and the remedy.

    Parameters
    ----------
    status : int
        The HTTP status of the response.
    problem : str
        What is wrong, without a final period.
    fix : str
        What to do about it, as an imperative sentence without a final period.
    retry_after : int or None
        Seconds after which the same request may succeed.

    Examples
    --------
    >>> str(HTTPError(409, "Id 'a' was decided with a different body", "Use another id"))
    "Id 'a' was decided with a different body. Use another id."
    """

    def __init__(self, status: int, problem: str, fix: str, retry_after: int | None = None) -> None:
        super().__init__(status, problem, fix)
        self.status, self.problem, self.fix = status, problem, fix
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        headers = {"www-authenticate": "Bearer"} if self.status == UNAUTHORIZED else {}
        if self.retry_after is not None:
            headers["retry-after"] = f"{self.retry_after}"
        return headers

    def __str__(self) -> str:
        return f"{self.problem}. {self.fix}."


def no_decision(decision_id: str, fix: str = "Use an id sent to POST /v1/decide") -> HTTPError:
    """Return the error of an id that no decision has."""
    return HTTPError(NOT_FOUND, f"There is no decision {decision_id!r}", fix)


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; booleans are not."""
    return type(value) in (int, float)


def show_json(value: Any) -> str:
    """Return a JSON value for a message, cut if it is long.

    >>> show_json([1]), show_json(None), show_json(float("inf"))
    ('a list', 'null', 'a number that is not finite')
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if is_number(value) and not abs(value) <= sys.float_info.max:
        return "a number that is not finite"
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
