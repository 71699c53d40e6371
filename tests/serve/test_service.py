from fastapi import Request

from dubito.serve.service import Service, service_of
from tests.serve.conftest import Api


def test_a_request_finds_its_service(api: Api) -> None:
    service = service_of(Request({"type": "http", "app": api.app}))
    assert isinstance(service, Service)
    assert service.store is api.store


def test_nobody_can_foresee_what_is_audited(api: Api) -> None:
    service = service_of(Request({"type": "http", "app": api.app}))
    other = Service(service.store, service.settings, service.catalog)
    assert other.drawing.random() != service.drawing.random()
