"""How calls follow each other, as the links of the OpenAPI document: what one answers is what the next one asks for."""

from __future__ import annotations

from typing import Any, NamedTuple

LINK_ID = {"link_id": "$response.body#/link_id"}
RUN_ID = {"run_id": "$response.body#/run_id"}
# Midnight lies on every grid of slots.
FIRST_COUNT = {
    "counts": [{"link_id": "$response.body#/link_id", "slot_start": "2025-09-01T00:00:00Z", "count": 42}],
}


class Follows(NamedTuple):
    """One call after another: where its parameters, or its body, come from."""

    call: str
    then: str
    name: str
    parameters: dict[str, str]
    body: dict[str, Any] | None = None


FOLLOWS = (
    Follows("GET /v1/links", "PUT /v1/links/{link_id}", "PutLink", {"link_id": "$response.body#/links/0/link_id"}),
    Follows("PUT /v1/links/{link_id}", "POST /v1/counts", "PostCounts", {}, FIRST_COUNT),
    Follows("PUT /v1/links/{link_id}", "GET /v1/links/{link_id}", "GetLink", LINK_ID),
    Follows(
        "POST /v1/counts",
        "GET /v1/links/{link_id}/forecast",
        "GetForecast",
        {"link_id": "$request.body#/counts/0/link_id"},
    ),
    Follows(
        "POST /v1/counts", "GET /v1/links/{link_id}/counts", "GetCounts", {"link_id": "$request.body#/counts/0/link_id"}
    ),
    Follows("POST /v1/admin/keys", "DELETE /v1/admin/keys/{key_id}", "RevokeKey", {"key_id": "$response.body#/key_id"}),
    Follows("POST /v1/admin/retrain", "GET /v1/admin/retrain/{run_id}", "GetRun", RUN_ID),
    Follows("POST /v1/admin/retrain", "DELETE /v1/admin/retrain/{run_id}", "CancelRun", RUN_ID),
    Follows(
        "GET /v1/admin/retrain",
        "GET /v1/admin/retrain/{run_id}",
        "GetNewestRun",
        {"run_id": "$response.body#/runs/0/run_id"},
    ),
    Follows("GET /v1/admin/retrain/{run_id}", "DELETE /v1/admin/retrain/{run_id}", "CancelRun", RUN_ID),
    Follows(
        "POST /v1/admin/webhooks",
        "DELETE /v1/admin/webhooks/{webhook_id}",
        "DeleteWebhook",
        {"webhook_id": "$response.body#/webhook_id"},
    ),
)


def add_links(schema: dict[str, Any]) -> None:
    """Add to every good answer of the document what can be asked next."""
    for call, then, name, parameters, body in FOLLOWS:
        link = {"operationId": _operation(schema, then)["operationId"]} | (
            {"parameters": parameters} if parameters else {}
        )
        if body is not None:
            link["requestBody"] = body
        for status, answer in _operation(schema, call)["responses"].items():
            if status.startswith("2"):
                answer.setdefault("links", {})[name] = link


def _operation(schema: dict[str, Any], call: str) -> dict[str, Any]:
    method, path = call.split(" ")
    operation: dict[str, Any] = schema["paths"][path][method.lower()]
    return operation
