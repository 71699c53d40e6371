import json
import logging

import pytest

from dubito.serve.logs import JsonLines, log_event, set_up_logs


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {name: logging.getLogger(name) for name in ("dubito.serve", "uvicorn", "uvicorn.error")}
    before = {name: (one.handlers, one.propagate, one.level) for name, one in kept.items()}
    try:
        set_up_logs()
        log_event("request", path="/v1/decide", status=200)
        try:
            raise ValueError("a\nb")
        except ValueError as error:
            log_event("failed", trace=error)
    finally:
        logging.getLogger("uvicorn.access").disabled = False
        for name, (handlers, propagate, level) in before.items():
            kept[name].handlers, kept[name].propagate = handlers, propagate
            kept[name].setLevel(level)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["event"] == "request"
    assert first["status"] == 200
    assert first["level"] == "info"
    assert second["level"] == "error"
    assert "ValueError: a\nb" in second["trace"]


def test_what_is_no_json_is_written_as_text() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 1, "said %s", ("this",), None)
    record.fields = {"where": {1}}
    told = json.loads(JsonLines().format(record))
    assert told["event"] == "said this"
    assert told["where"] == "{1}"
