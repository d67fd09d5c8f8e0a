"""The service conforms to its OpenAPI document: schemathesis sends valid and invalid requests made from it."""

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.running import V1, InThread, in_thread, report_body, settings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("schema"), main=settings()) as running:
        for i in range(3):
            running.report(report_body(running.decide(f"r{i}", i).data))
        yield running


@pytest.fixture(scope="module")
def document(service: InThread) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")


STREAMS = ("watch", "playground_run")  # their responses do not end
WITHOUT_INPUT = ("health", "metrics", "openapi", "list_allocators", "playground_options")
OF_ONE_ALLOCATOR = ("status", "decide", "report", "step", "explain", "vacate", "restore", "reset")
LIFE_CYCLE = ("create", "change", "delete")


def conforms(document: Any, name: str, mode: GenerationMode, also: Callable[[Any], None]) -> None:
    """Send requests to an operation that match the document, or (negative) do not match it."""
    strategy = document.find_operation_by_id(name).as_strategy(generation_mode=mode)

    @hypothesis.settings(max_examples=8, suppress_health_check=list(hypothesis.HealthCheck), database=None)
    @hypothesis.given(case=strategy)
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)
        also(case)
        case.call_and_validate(checks=CHECKS)

    check()


@pytest.mark.parametrize("name", WITHOUT_INPUT)
def test_operations_without_input_conform(document: Any, name: str) -> None:
    conforms(document, name, GenerationMode.POSITIVE, lambda case: None)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", OF_ONE_ALLOCATOR)
def test_operations_of_an_allocator_conform(document: Any, name: str, mode: GenerationMode) -> None:
    def use_an_existing_allocator(case: Any) -> None:
        case.path_parameters = {"name": "main"}

    if mode == GenerationMode.POSITIVE or name not in ("status", "reset"):  # these have no input
        conforms(document, name, mode, use_an_existing_allocator)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_create_conforms(document: Any, mode: GenerationMode) -> None:
    def use_an_existing_policy(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body = {**case.body, "policy": "mp-ucb", "name": "main"}

    conforms(document, "create", mode, use_an_existing_policy)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", ["change", "delete"])
def test_changes_and_deletions_conform(service: InThread, document: Any, name: str, mode: GenerationMode) -> None:
    def use_an_allocator_of_its_own(case: Any) -> None:
        service.within(lambda: service.service.open("deleted", settings()))
        case.path_parameters = {"name": "deleted"}

    conforms(document, name, mode, use_an_allocator_of_its_own)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_steps_conform(document: Any, mode: GenerationMode) -> None:
    def use_an_existing_allocator(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("steps"), list):
            for one in case.body["steps"]:
                if isinstance(one, dict) and "name" in one:
                    one["name"] = "main"

    conforms(document, "steps", mode, use_an_existing_allocator)


def test_every_operation_is_in_the_document(service: InThread) -> None:
    paths = service.get("/openapi.json").data["paths"]
    for operation in service.service.operations():
        assert operation.method.lower() in paths[operation.path]
    described = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert sorted(described) == sorted([*STREAMS, *WITHOUT_INPUT, *OF_ONE_ALLOCATOR, *LIFE_CYCLE, "steps"])


def test_errors_of_the_middleware_are_in_the_document(service: InThread) -> None:
    for path, methods in service.get("/openapi.json").data["paths"].items():
        for one in methods.values():
            expected = {"401", "404", "405", "421", "429", "503"}
            if "requestBody" in one:
                expected |= {"400", "413", "415"}
            assert expected <= set(one["responses"]), path


def test_valid_requests_conform(service: InThread, document: Any) -> None:
    """With contexts of the right shape, which schemathesis cannot generate."""
    decision = service.decide("valid").data
    for method, path, query, body in (
        ("POST", f"{V1}/{{name}}/decide", {}, {"request_id": "new", "contexts": [[0.5, 0.5]] * 4}),
        ("POST", f"{V1}/{{name}}/report", {}, report_body(decision)),
        (
            "POST", f"{V1}/{{name}}/step", {},
            {"report": report_body(decision), "decide": {"request_id": "step", "contexts": [[0.5, 0.5]] * 4}},
        ),
        (
            "POST", "/v1/steps", {},
            {"steps": [{"name": name, "report": report_body(decision)} for name in ("main", "none")]},
        ),
        ("GET", f"{V1}/{{name}}/explain", {"request_id": "valid"}, None),
        ("POST", f"{V1}/{{name}}/vacate", {}, {"channels": [1]}),
        ("POST", f"{V1}/{{name}}/restore", {}, {"channels": [1]}),
        ("POST", f"{V1}/{{name}}/reset", {}, None),
        ("GET", f"{V1}/{{name}}", {}, None),
        ("PATCH", f"{V1}/{{name}}", {}, {"patience": 500}),
        ("DELETE", f"{V1}/{{name}}", {"number": "1"}, None),
    ):  # fmt: skip
        operation = document[path][method]
        given = {} if body is None else {"body": body, "media_type": "application/json"}
        names = {"name": "main"} if "{name}" in path else {}
        case = operation.Case(path_parameters=names, query=query, **given)
        reply = case.call_and_validate(checks=CHECKS)
        assert reply.status_code == 200, reply.text


def test_token_is_in_the_document(tmp_path: Any) -> None:
    with in_thread(tmp_path, token="a-token-of-the-tests") as running:
        found = running.get("/openapi.json").data
        assert found["security"] == [{"token": []}]
        assert found["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
