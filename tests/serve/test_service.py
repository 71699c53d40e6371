import json
import logging
from threading import Thread

import pytest
from fastapi import Request

from dubito.decide import Policy
from dubito.errors import BadValueError
from dubito.serve.http_errors import HTTPError
from dubito.serve.service import (
    JSONFormatter,
    Metrics,
    PolicyCatalog,
    Service,
    Settings,
    configure_logging,
    get_service,
    log_event,
)
from dubito.serve.store import Store
from studies.common.serving import fitted_policy
from tests.serve.conftest import Api


def test_defaults_are_an_audit_of_one_in_a_hundred_and_no_deleting() -> None:
    settings = Settings()
    assert settings.audit_fraction == 0.01
    assert settings.retention_days is None
    assert not settings.blind


@pytest.mark.parametrize(
    ("name", "value"), [("retention_days", 0.0), ("lease_seconds", -1.0), ("max_rows", 0)]
)
def test_numbers_must_be_above_0(name: str, value: float) -> None:
    with pytest.raises(BadValueError) as caught:
        Settings(**{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"Settings: `{name}` must be a number above 0, got {value!r}. Use {name}=30."
    )


def test_a_fraction_is_between_0_and_1() -> None:
    with pytest.raises(
        BadValueError,
        match=r"Settings: `audit_fraction` must be a number between 0 and 1, got 1\.5",
    ):
        Settings(audit_fraction=1.5)


def test_the_catalog_follows_activations(small_store: Store, policy: Policy) -> None:
    catalog = PolicyCatalog(small_store)
    assert catalog.active[0] == 1
    other = small_store.add_policy(fitted_policy(reject_cost=0.1).to_json())
    small_store.activate(other)
    assert catalog.active[0] == 1
    catalog.refresh()
    number, found = catalog.active
    assert number == other
    first = catalog.policy(1)
    assert isinstance(found, Policy)
    assert isinstance(first, Policy)
    assert (found.costs.array[-1, 0], first.costs.array[-1, 0]) == (0.1, 0.3)


def test_no_active_policy_is_reported(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('empty')}/d.db")
    catalog = PolicyCatalog(store)
    with pytest.raises(HTTPError) as caught:
        _ = catalog.active
    assert str(caught.value) == (
        "No policy is active. Upload one with POST /v1/policies and activate it."
    )
    store.close()


def test_counters_have_labels() -> None:
    metrics = Metrics()
    metrics.decisions.labels('say "no"\n').inc(3)
    metrics.decisions.labels("a").inc(1_234_567)
    metrics.waiting.set(12)
    lines = metrics.text().splitlines()
    assert r'dubito_decisions_total{action="say \"no\"\n"} 3.0' in lines
    assert 'dubito_decisions_total{action="a"} 1.234567e+06' in lines
    assert "# TYPE dubito_decisions_total counter" in lines
    assert "dubito_review_waiting 12.0" in lines


def test_a_histogram_counts_all_below_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.03, 100.0):
        metrics.seconds.observe(seconds)
    lines = metrics.text().splitlines()
    assert 'dubito_request_seconds_bucket{le="0.001"} 2.0' in lines
    assert 'dubito_request_seconds_bucket{le="0.05"} 3.0' in lines
    assert 'dubito_request_seconds_bucket{le="+Inf"} 4.0' in lines
    assert "dubito_request_seconds_count 4.0" in lines
    assert "dubito_request_seconds_sum 100.0315" in lines


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def many() -> None:
        for _ in range(2000):
            metrics.labels.inc()

    threads = [Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "dubito_labels_total 8000.0" in metrics.text()


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {name: logging.getLogger(name) for name in ("dubito.serve", "uvicorn", "uvicorn.error")}
    before = {name: (one.handlers, one.propagate, one.level) for name, one in kept.items()}
    try:
        configure_logging()
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


def test_other_values_are_logged_as_text() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 1, "said %s", ("this",), None)
    record.fields = {"where": {1}}
    entry = json.loads(JSONFormatter().format(record))
    assert entry["event"] == "said this"
    assert entry["where"] == "{1}"


def test_a_request_finds_its_service(shared_api: Api) -> None:
    service = get_service(Request({"type": "http", "app": shared_api.app}))
    assert isinstance(service, Service)
    assert service.store is shared_api.store


def test_audits_are_unpredictable(shared_api: Api) -> None:
    service = get_service(Request({"type": "http", "app": shared_api.app}))
    other = Service(service.store, service.settings, service.catalog)
    assert other.rng.random() != service.rng.random()
