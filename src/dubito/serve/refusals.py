"""What is refused, and with which status of HTTP."""

from __future__ import annotations

from typing import final

from dubito.errors import DubitoError

WRONG, UNKNOWN, FORBIDDEN, MISSING, CONFLICT, TOO_LARGE = 422, 401, 403, 404, 409, 413


@final
class RefusedError(DubitoError, ValueError):
    """Something that is asked for is refused, with a reason and what to try.

    >>> str(RefusedError(409, "Id 'a' was decided with another body", "another id"))
    "Id 'a' was decided with another body. Try another id."
    """

    def __init__(self, status: int, problem: str, fix: str) -> None:
        super().__init__(status, problem, fix)
        self.status, self.problem, self.fix = status, problem, fix

    def __str__(self) -> str:
        return f"{self.problem}. Try {self.fix}."
