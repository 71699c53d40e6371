"""`HTTPError`: an error that the service answers with an HTTP status."""

from __future__ import annotations

from http import HTTPStatus
from typing import final

from dubito.errors import DubitoError

UNAUTHORIZED = HTTPStatus.UNAUTHORIZED.value
FORBIDDEN = HTTPStatus.FORBIDDEN.value
NOT_FOUND = HTTPStatus.NOT_FOUND.value
CONFLICT = HTTPStatus.CONFLICT.value
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE.value
TOO_LARGE = 413
INVALID = 422


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

    def __str__(self) -> str:
        return f"{self.problem}. {self.fix}."


def no_decision(decision_id: str, fix: str = "Use the id of a decision") -> HTTPError:
    """Return the error of an id that no decision has."""
    return HTTPError(NOT_FOUND, f"There is no decision {decision_id!r}", fix)
