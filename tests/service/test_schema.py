"""The OpenAPI document says what the service does: schemathesis makes requests from it, good and bad, and compares."""

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

from tests.service.running import InThread, feedback, in_thread, settings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("schema"), main=settings()) as running:
        for i in range(3):  # so that there is something to show
            running.report(feedback(running.decide(f"r{i}", i).data))
        yield running


@pytest.fixture(scope="module")
def document(service: InThread) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")


STREAMS = ("watch", "playground_run")  # these have no end
LOOKS = ("health", "metrics", "openapi", "list_allocators", "playground_options")
OF_ONE = ("show", "decide", "report", "explain", "vacate", "restore", "reset")


def conforms(document: Any, name: str, mode: GenerationMode, also: Callable[[Any], None]) -> None:
    """Requests to an operation as the document has them, or (negative) as it does not."""
    strategy = document.find_operation_by_id(name).as_strategy(generation_mode=mode)

    @hypothesis.settings(max_examples=15, suppress_health_check=list(hypothesis.HealthCheck), database=None)
    @hypothesis.given(case=strategy)
    def check(case: schemathesis.ConfiguredPolicy) -> None:
        case.call_and_validate(checks=CHECKS)
        also(case)
        case.call_and_validate(checks=CHECKS)

    check()


@pytest.mark.parametrize("name", LOOKS)
def test_looks(document: Any, name: str) -> None:
    conforms(document, name, GenerationMode.POSITIVE, lambda case: None)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", OF_ONE)
def test_operations_of_an_allocator(document: Any, name: str, mode: GenerationMode) -> None:
    def of_one_that_there_is(case: Any) -> None:
        case.path_parameters = {"name": "main"}

    if mode == GenerationMode.POSITIVE or name not in ("show", "reset"):  # these take nothing that could be wrong
        conforms(document, name, mode, of_one_that_there_is)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_a_new_allocator(document: Any, mode: GenerationMode) -> None:
    def of_a_policy_that_there_is(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body = {**case.body, "policy": "mp-ucb", "name": "main"}

    conforms(document, "create", mode, of_a_policy_that_there_is)


def test_every_operation_is_in_the_document(service: InThread) -> None:
    paths = service.get("/openapi.json").data["paths"]
    for operation in service.service.operations():
        assert operation.method.lower() in paths[operation.path]
    described = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert sorted(described) == sorted([*STREAMS, *LOOKS, *OF_ONE, "create"])


def test_refusals_that_come_before_any_operation_are_in_the_document(service: InThread) -> None:
    for path, methods in service.get("/openapi.json").data["paths"].items():
        for one in methods.values():
            expected = {"401", "404", "405", "421", "429", "503"}
            if "requestBody" in one:
                expected |= {"400", "413", "415"}
            assert expected <= set(one["responses"]), path


def test_good_answers_are_as_the_document_says(service: InThread, document: Any) -> None:
    """What schemathesis cannot make up: questions of the right size."""
    answer = service.decide("good").data
    for method, path, where, body in (
        ("POST", "/allocators/{name}/decide", {}, {"request": "new", "contexts": [[0.5, 0.5]] * 4}),
        ("POST", "/allocators/{name}/report", {}, feedback(answer)),
        ("GET", "/allocators/{name}/explain", {"request": "good"}, None),
        ("POST", "/allocators/{name}/vacate", {}, {"channels": [1]}),
        ("POST", "/allocators/{name}/restore", {}, {"channels": [1]}),
        ("POST", "/allocators/{name}/reset", {}, None),
        ("GET", "/allocators/{name}", {}, None),
    ):
        operation = document[path][method]
        given = {} if body is None else {"body": body, "media_type": "application/json"}
        case = operation.ConfiguredPolicy(path_parameters={"name": "main"}, query=where, **given)
        reply = case.call_and_validate(checks=CHECKS)
        assert reply.status_code == 200, reply.text


def test_a_token_is_in_the_document_where_there_is_one(tmp_path: Any) -> None:
    with in_thread(tmp_path, token="a-token-of-the-tests") as running:
        found = running.get("/openapi.json").data
        assert found["security"] == [{"token": []}]
        assert found["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
