"""Structured logs: a line of JSON an event, in which no token ever stands."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, final

LOGGER = logging.getLogger("dubito.serve")


@final
class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def set_up_logs() -> None:
    """Send all logs of the service, and of its server, to stderr as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("dubito.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    # The server's own list of requests would hold query strings, and whatever stands in them.
    logging.getLogger("uvicorn.access").disabled = True


def log_event(event: str, *, trace: BaseException | None = None, **fields: Any) -> None:
    """Write down what happened; the caller names what may be known, headers and queries never."""
    level = logging.INFO if trace is None else logging.ERROR
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=trace)
