"""The parts of the OpenAPI document that FastAPI does not derive from routes: problems, and calls that can follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from app.core.errors import ProblemType
from app.http.problems import MEDIA_TYPE, ProblemBody, problem_responses
from app.links.schemas import LINKS_BODY

REF_TEMPLATE = "#/components/schemas/{model}"
EVERYWHERE = (
    ProblemType.UNAUTHORIZED,
    ProblemType.FORBIDDEN,
    ProblemType.INVALID,
    ProblemType.TOO_MANY_REQUESTS,
    ProblemType.UNAVAILABLE,
    ProblemType.OVERLOADED,
)
WITH_A_BODY = (ProblemType.TOO_SLOW, ProblemType.TOO_LARGE, ProblemType.UNSUPPORTED_MEDIA_TYPE)
BEARER = "bearer"
TAGS = [
    {"name": "links", "description": "Directed stretches of road, each with a detector."},
    {"name": "counts", "description": "Vehicles on one link in one slot: in, out, and from files."},
    {"name": "forecasts", "description": "What is expected, how sure it is, and past forecasts."},
    {"name": "accuracy", "description": "Forecasts compared with the realised counts."},
    {"name": "health", "description": "Which detectors to trust, and how complete their counts are."},
    {"name": "models", "description": "The registry of trained models."},
    {"name": "retraining", "description": "Retrain runs, activating a version and going back to one."},
    {"name": "events", "description": "New forecasts and activations, streamed and pushed."},
    {"name": "audit", "description": "Every call that needed the scope admin."},
    {"name": "keys", "description": "API keys and what they may do."},
    {"name": "operations", "description": "For those who run the service; no key needed."},
]
DESCRIPTION = """Forecasts the traffic on every road link of a city from the counts its detectors already send.

Every call under `/v1` needs a key in `X-API-Key`, or as `Authorization: Bearer`, with the scope `read`, `ingest` or
`admin`. Times are RFC 3339 with an offset. Every error is an RFC 9457 problem; its `request_id` is also in the
service's log."""
LINK_ID = {"link_id": "$response.body#/link_id"}
POSTED_LINK_ID = {"link_id": "$request.body#/counts/0/link_id"}
KEY_ID = {"key_id": "$response.body#/key_id"}
RUN_ID = {"run_id": "$response.body#/run_id"}
NEWEST_RUN_ID = {"run_id": "$response.body#/runs/0/run_id"}
WEBHOOK_ID = {"webhook_id": "$response.body#/webhook_id"}
# Midnight lies on every grid of slots.
FIRST_COUNT = {
    "counts": [{"link_id": "$response.body#/link_id", "slot_start": "2025-09-01T00:00:00Z", "count": 42}],
}


class ResponseLink(NamedTuple):
    """A call that can follow another: where its parameters, or its body, come from."""

    call: str
    then: str
    name: str
    parameters: dict[str, str]
    body: dict[str, Any] | None = None


RESPONSE_LINKS = (
    ResponseLink("GET /v1/links", "PUT /v1/links/{link_id}", "PutLink", {"link_id": "$response.body#/links/0/link_id"}),
    ResponseLink("PUT /v1/links/{link_id}", "POST /v1/counts", "PostCounts", {}, FIRST_COUNT),
    ResponseLink("PUT /v1/links/{link_id}", "GET /v1/links/{link_id}", "GetLink", LINK_ID),
    ResponseLink("POST /v1/counts", "GET /v1/links/{link_id}/forecast", "GetForecast", POSTED_LINK_ID),
    ResponseLink("POST /v1/counts", "GET /v1/links/{link_id}/counts", "GetCounts", POSTED_LINK_ID),
    ResponseLink("POST /v1/admin/keys", "DELETE /v1/admin/keys/{key_id}", "RevokeKey", KEY_ID),
    ResponseLink("POST /v1/admin/retrain", "GET /v1/admin/retrain/{run_id}", "GetRun", RUN_ID),
    ResponseLink("POST /v1/admin/retrain", "DELETE /v1/admin/retrain/{run_id}", "CancelRun", RUN_ID),
    ResponseLink("GET /v1/admin/retrain", "GET /v1/admin/retrain/{run_id}", "GetNewestRun", NEWEST_RUN_ID),
    ResponseLink("GET /v1/admin/retrain/{run_id}", "DELETE /v1/admin/retrain/{run_id}", "CancelRun", RUN_ID),
    ResponseLink("POST /v1/admin/webhooks", "DELETE /v1/admin/webhooks/{webhook_id}", "DeleteWebhook", WEBHOOK_ID),
)


def document(app: FastAPI) -> None:
    """Complete the OpenAPI document of an app: operation ids, problems of every call, and the calls that follow.

    An operation is named as the function of its route, so that methods of generated clients are, too.
    """
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name
    make = app.openapi

    def openapi() -> dict[str, Any]:
        return app.openapi_schema or _completed(make(), app.routes)  # which keeps it

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(schema: dict[str, Any], routes: Iterable[BaseRoute]) -> dict[str, Any]:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/"):
                types = [*EVERYWHERE, *(WITH_A_BODY if "requestBody" in operation else ())]
                types += [ProblemType.NOT_ACCEPTABLE] if method == "get" else []
                types += [ProblemType.NOT_FOUND] if "{" in path else []
                if "security" in operation:
                    operation["security"].append({BEARER: []})
                _put(operation["responses"], *types)
            elif "422" in operation["responses"]:
                _put(operation["responses"], ProblemType.INVALID)
            operation["responses"] = dict(sorted(operation["responses"].items()))
    components = schema["components"]
    components["securitySchemes"][BEARER] = {
        "type": "http",
        "scheme": "bearer",
        "description": "The same key as a bearer token; where both are sent, X-API-Key counts",
    }
    schemas = components["schemas"]
    for replaced in ("HTTPValidationError", "ValidationError"):
        schemas.pop(replaced, None)
    problem = ProblemBody.model_json_schema(ref_template=REF_TEMPLATE)
    schemas.update(problem.pop("$defs"))
    # A body that FastAPI does not parse.
    schemas.update(LINKS_BODY.json_schema(ref_template=REF_TEMPLATE)["$defs"])
    schemas["Problem"] = problem
    _restore_examples(schemas, routes)
    _add_links(schema)
    return schema


def _restore_examples(schemas: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Put back the examples of responses, because FastAPI leaves out of them what is null."""
    for route in routes:
        if isinstance(route, APIRoute):
            returned = [route.response_model, *(more.get("model") for more in route.responses.values())]
            for model in {one for answer in returned for one in get_args(answer) or [answer]}:
                if getattr(model, "__name__", None) in schemas:
                    schemas[model.__name__] |= model.model_config.get("json_schema_extra", {})


def _put(responses: dict[str, Any], *types: ProblemType) -> None:
    for status, response in problem_responses(*types).items():
        given = responses.get(str(status))
        if given is None or MEDIA_TYPE not in given.get("content", {}):
            responses[str(status)] = response


def _add_links(schema: dict[str, Any]) -> None:
    """Add to every good answer of the document the calls that can follow."""
    for call, then, name, parameters, body in RESPONSE_LINKS:
        link = {"operationId": _operation(schema, then)["operationId"]}
        if parameters:
            link["parameters"] = parameters
        if body is not None:
            link["requestBody"] = body
        for status, answer in _operation(schema, call)["responses"].items():
            if status.startswith("2"):
                answer.setdefault("links", {})[name] = link


def _operation(schema: dict[str, Any], call: str) -> dict[str, Any]:
    method, path = call.split(" ")
    operation: dict[str, Any] = schema["paths"][path][method.lower()]
    return operation
