"""The OpenAPI document of a table of operations."""

import re
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from idleband.service.messages import Problem
from idleband.service.operations import Operation

ALWAYS = {
    401: "no token, or a wrong one",
    403: "requested by a page of another origin",
    404: "unknown path",
    405: "method not allowed",
    421: "Host is not a name of this service",
    429: "too many requests",
    503: "the journal cannot be written, or there are too many connections",
}
WITH_BODY = {400: "invalid body", 413: "body too large", 415: "body is not JSON"}


def openapi(operations: Sequence[Operation], version: str, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI document. `secured`: requests need a bearer token."""
    messages: list[Any] = [Problem]
    for operation in operations:
        found = (operation.body, operation.response, *operation.error_responses.values())
        messages += [message for message in found if message is not None]
    _, schemas = msgspec.json.schema_components(messages, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "idleband",
            "version": version,
            "description": "Assigns idle channels to secondary users. Channels are numbered from 0; a channel name is"
            " accepted wherever an index is. Paths under /v1 keep their meaning; /health, /metrics and /openapi.json"
            " have no version.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _describe(operation: Operation) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", operation.path)
    responses: dict[str, Any] = {
        "200": {"description": operation.summary, "content": {operation.media_type: _success_schema(operation)}}
    }
    errors = ALWAYS | ({} if operation.body is None else WITH_BODY) | operation.errors
    for status, meaning in sorted(errors.items()):
        schema = _reference(operation.error_responses.get(status, Problem))
        responses[str(status)] = {"description": meaning, "content": {"application/json": {"schema": schema}}}
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "parameters": [_parameter(name, "path") for name in names]
        + [_parameter(name, "query") for name in operation.query]
        + [_optional_parameter(name, meaning) for name, meaning in operation.optional_query.items()],
        "responses": responses,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": _reference(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _success_schema(operation: Operation) -> dict[str, Any]:
    if operation.response is not None:
        return {"schema": _reference(operation.response)}
    return {} if operation.media_type == "application/json" else {"schema": {"type": "string"}}


def _reference(message: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{(get_args(message) or (message,))[0].__name__}"}


def _optional_parameter(name: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": meaning, "schema": {"type": "string"}}


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string", "minLength": 1}}
