"""What the OpenAPI document says beyond the routes themselves: every error that can come, and how it looks."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.http.problems import MEDIA_TYPE, ProblemBody, problem_responses
from app.links.geojson import LINKS_BODY
from app.server.document_links import add_links

__all__ = ["DESCRIPTION", "TAGS", "document", "problem_responses"]

REF_TEMPLATE = "#/components/schemas/{model}"
EVERYWHERE = (401, 403, 422, 429, 503)
WITH_A_BODY = (408, 413, 415)
BEARER = "bearer"
TAGS = [
    {"name": "links", "description": "Directed stretches of road, each with a detector."},
    {"name": "counts", "description": "Vehicles on one link in one slot: in, out, and from files."},
    {"name": "forecasts", "description": "What is expected, how sure it is, and what was said before."},
    {"name": "accuracy", "description": "Forecasts against the counts that came."},
    {"name": "health", "description": "Which detectors to trust, and how complete their counts are."},
    {"name": "models", "description": "The shelf of trained models."},
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


def document(app: FastAPI) -> None:
    """Let an app's OpenAPI document name the problems that every call may answer with."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_problems(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    description=app.description,
                    routes=app.routes,
                    tags=app.openapi_tags,
                    license_info=app.license_info,
                )
            )
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/"):
                statuses = (*EVERYWHERE, *(WITH_A_BODY if "requestBody" in operation else ()))
                statuses += (406,) if method == "get" else ()
                if "security" in operation:
                    operation["security"].append({BEARER: []})
                for status in (*statuses, 404) if "{" in path else statuses:
                    _put(operation["responses"], status)
            elif "422" in operation["responses"]:
                _put(operation["responses"], 422)
            operation["responses"] = dict(sorted(operation["responses"].items()))
    components = schema.setdefault("components", {})
    components["securitySchemes"][BEARER] = {
        "type": "http",
        "scheme": "bearer",
        "description": "The same key as a bearer token; where both are sent, X-API-Key counts",
    }
    schemas = components.setdefault("schemas", {})
    for replaced in ("HTTPValidationError", "ValidationError"):
        schemas.pop(replaced, None)
    problem = ProblemBody.model_json_schema(ref_template=REF_TEMPLATE)
    schemas.update(problem.pop("$defs"))
    schemas.update(LINKS_BODY.json_schema(ref_template=REF_TEMPLATE)["$defs"])  # which FastAPI does not parse itself
    schemas["Problem"] = problem
    add_links(schema)
    return schema


def _put(responses: dict[str, Any], status: int) -> None:
    given = responses.get(str(status))
    if given is None or MEDIA_TYPE not in given.get("content", {}):
        responses[str(status)] = problem_responses(status)[status]
