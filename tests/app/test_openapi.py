"""schemathesis over the whole OpenAPI document, with all its checks, against a service that holds a small city.

Everything is seeded. What the service refuses although its schema allows it is listed below, rule by rule.
"""

import copy
import gzip
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zoneinfo import available_timezones

import pytest
import schemathesis
import schemathesis.engine.core  # before a service has threads: Python 3.11 cannot always compile in several
import schemathesis.specs.openapi.schemas
from fastapi import FastAPI
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.engine import Status, events, from_schema
from schemathesis.python.asgi import shutdown_lifespans
from starlette.testclient import TestClient

from app.accuracy.measure import LONGEST_RULE
from app.counts.importers.record import YEAR_RULE
from app.counts.ingest import ONCE_RULE, UNKNOWN_LINK
from app.demo.city import City
from app.forecasts.levels import LEVEL_ONCE_RULE
from app.forecasts.options import HORIZON_RULE
from app.health.examine import DAYS_RULE
from app.server.documentation import RESPONSE_LINKS
from app.settings import Settings
from tests.support.city import SLOTS, TRAINED_DAYS, post, rows, slot_start, small_city
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.services import ADMIN_KEY

pytestmark = pytest.mark.journey


EXAMPLES = 4  # drawn for each operation, beside the examples of the document and every boundary of its schema
WALKS, STEPS = 40, 8  # of calls that follow each other
CITY = small_city()  # at import, because strategies use its links
LINK_IDS = sorted(CITY.counts)
NEWEST = TRAINED_DAYS * SLOTS
FILES = ("text/csv", "application/x-ndjson", "application/octet-stream", "application/gzip", "application/zip")
SPARE = ["spare-1", "spare-2"]  # links that may be deleted
HOOK = {"url": "https://control.example/flowcast", "events": ["forecasts"]}
PHASES = {"examples", "coverage", "fuzzing", "stateful"}
BOUNDARIES = {"coverage"}  # for themselves, because there are thousands of them
CHECKS = {
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "positive_data_acceptance", "missing_required_header",
    "unsupported_method", "use_after_free", "ensure_resource_availability", "ignored_auth", "allow_header_conformance",
}  # fmt: skip
# Rules that no schema can state, and where an answer may name them to refuse what the schema allows.
SPAN = "must lie before to="
BEYOND_SCHEMAS = {
    # A schema does not contain the links of a city or their grids, and JSON Schema has no "unique by these fields".
    "POST /v1/counts": f"{UNKNOWN_LINK}|{ONCE_RULE}|{YEAR_RULE}|must lie on the link's grid",
    # A file may have another layout than ``format``.
    "POST /v1/import": "must be a file of counts: |must be a form with the file|must be left out where the map",
    # A link's slots determine how many there are in a day.
    "GET /v1/links/{link_id}/forecast": f"must lie on the link's grid|{HORIZON_RULE}|{LEVEL_ONCE_RULE}",
    "GET /v1/forecasts": f"{HORIZON_RULE}|{LEVEL_ONCE_RULE}",
    "GET /v1/links/{link_id}/forecasts": SPAN,
    "GET /v1/links/{link_id}/counts": SPAN,
    "DELETE /v1/links/{link_id}/counts": SPAN,
    "GET /v1/links/{link_id}/accuracy": SPAN,
    "GET /v1/links/{link_id}/health": f"{SPAN}|{DAYS_RULE}",
    "GET /v1/accuracy": f"{SPAN}|{LONGEST_RULE}",
}


STORING_LINKS = (("/v1/links/{link_id}", "patch"), ("/v1/links", "post"))


# ---------------------------------------------------------------- what the generator cannot know by itself


def boxes() -> st.SearchStrategy[str]:
    longitude, latitude = st.integers(-180, 180), st.integers(-90, 90)
    drawn = st.tuples(longitude, st.lists(latitude, min_size=2, max_size=2).map(sorted), longitude)
    return drawn.map(lambda box: f"{box[0]},{box[1][0]},{box[2]},{box[1][1]}")


def count_rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {
            "link_id": st.sampled_from(LINK_IDS),
            "slot_start": st.integers(0, NEWEST).map(lambda i: slot_start(CITY, i)),
            "count": st.integers(0, 2000),
        },
        optional={"quality": st.sampled_from(["observed", "imputed", "suspect"])},
    )
    return st.lists(row, min_size=1, max_size=5, unique_by=lambda one: (one["link_id"], one["slot_start"]))


def as_csv(counts: list[dict[str, Any]]) -> str:
    names = ("link_id", "slot_start", "count", "quality")
    lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in counts)]
    return "\n".join([*lines, ""])


def as_json_lines(counts: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in counts)


def packed(value: Any, media_type: str) -> bytes:
    """Write a file in its media type; what is no text was never meant to be right."""
    data = value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value, default=str).encode()
    if media_type == "application/gzip":
        return gzip.compress(data, mtime=0)
    if media_type == "application/zip":
        archived = io.BytesIO()
        with zipfile.ZipFile(archived, "w") as archive:
            archive.writestr(zipfile.ZipInfo("counts.csv"), data)
        return archived.getvalue()
    return data


@pytest.fixture(scope="module", autouse=True)
def _languages() -> None:
    schemathesis.openapi.format("iana-time-zone", st.sampled_from(sorted(available_timezones())))
    schemathesis.openapi.format("bounding-box", boxes())
    schemathesis.openapi.format("column-map", st.sampled_from(["count=count", "link_id=LINK_ID,slot_start=Slot_start"]))
    csv, lines = count_rows().map(as_csv), count_rows().map(as_json_lines)
    schemathesis.openapi.format("counts-csv", csv)
    schemathesis.openapi.format("counts-jsonl", lines)
    schemathesis.openapi.format("count-file", csv | lines)

    @schemathesis.serializer(*FILES)
    def as_file(context: Any, value: Any) -> bytes:
        return packed(value, context.case.media_type)


def close_rings(value: Any) -> None:
    """Close every ring of a polygon in a body, which JSON Schema cannot require."""
    if isinstance(value, list):
        for part in value:
            close_rings(part)
    elif isinstance(value, dict):
        try:
            nested = {"Polygon": [value["coordinates"]], "MultiPolygon": value["coordinates"]}.get(value["type"], [])
            for polygon in nested:
                for ring in polygon:
                    ring[-1] = ring[0]
        except (LookupError, TypeError):  # not a geometry, or none that is meant to be right
            pass
        for part in value.values():
            close_rings(part)


def is_beyond_schemas(failure: Any, case: Any, response: Any) -> bool:
    """Return whether a refusal, or an acceptance, follows from a rule that no schema can state."""
    label, status = case.operation.label, response.status_code
    if "positive_data_acceptance" in failure.checks and status == 422 and label in BEYOND_SCHEMAS:
        reasons = [error["reason"] for error in response.json()["errors"]]
        return bool(reasons) and all(re.match(BEYOND_SCHEMAS[label], reason) for reason in reasons)
    # DELETE cancels a run, which can still be read.
    if label == "GET /v1/admin/retrain/{run_id}" and "use_after_free" in failure.checks:
        return bool(response.json()["state"] == "cancelled")
    if label != "POST /v1/counts" or "negative_data_rejection" not in failure.checks:
        return False
    # With partial=true bad counts are refused one by one and listed in the response; JSON lines may be empty.
    return bool(response.json()["refused"]) or response.json()["received"] == 0


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with each form in which links are stored once, and most geometries in one of them.

    PUT has the boundaries of points, and of lines and areas as parts of others. PATCH, the list of links and the
    collection of features take the same kinds, and would have as many again each; there, points will do. What is drawn
    follows the whole document, and tests of the calls store every kind.
    """
    document = copy.deepcopy(document)
    schemas, paths = document["components"]["schemas"], document["paths"]
    schemas["LinkChange"] = copy.deepcopy(schemas["LinkBody"])
    change, store = (paths[path][method]["requestBody"]["content"] for path, method in STORING_LINKS)
    change["application/json"]["schema"] = {"$ref": "#/components/schemas/LinkChange"}
    store["application/json"]["schema"] = store["application/json"]["schema"]["oneOf"][0]  # the other is GeoJSON
    for name in ("LinkChange", "LinkIn", "LinkFeature", "LinkBody"):
        kept = ("Point", "MultiLineString", "MultiPolygon") if name == "LinkBody" else ("Point",)
        geometry = schemas[name]["properties"]["geometry"]["anyOf"][0]
        geometry["oneOf"] = [kind for kind in geometry["oneOf"] if kind["$ref"].rpartition("/")[2] in kept]
        assert len(geometry["oneOf"]) == len(kept)
        del geometry["discriminator"]
    return document


def is_tried_again(case: Any) -> bool:
    """Return whether a parameter has a value of a wrong type and is alone."""
    tried = case.meta.phase.data
    if getattr(tried, "scenario", None) != "incorrect_type":  # only boundaries have one
        return False
    return bool(tried.parameter_location == ParameterLocation.QUERY and tried.location is None)


def configuration(ways: set[str], *, for_longer: bool = False) -> SchemathesisConfig:
    """Return the configuration of these phases; ``for_longer`` follows the document's links alone, in more steps."""
    link = {"dictionary": "links", "probability": 0.8}
    phases: dict[str, Any] = {
        # Otherwise what is drawn would depend on times and keys in earlier answers.
        "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": {"enabled": False}},
        # One place refuses every method that a path does not have.
        "coverage": {"unexpected-methods": ["DELETE", "PATCH", "TRACE"]},
    }
    phases |= {phase: {"enabled": False} for phase in sorted(PHASES - ways)}
    if for_longer:
        # No links but ours: what schemathesis infers beside them is followed by the other run.
        phases |= {"stateful": {"max-steps": STEPS, "inference": {"algorithms": []}}}
    return SchemathesisConfig.from_dict(
        {
            "seed": 5,
            "cache": {"enabled": False},
            "continue-on-failure": True,
            "headers": {"X-API-Key": ADMIN_KEY},
            "dictionaries": {
                "links": {"values": LINK_IDS},
                "spare": {"values": SPARE},
                "hooks": {"values": [HOOK["url"]]},
            },
            "parameters": {
                "path.link_id": link,
                "query.upstream_of": link,
                "body.counts[*].link_id": link,
                "body.links[*]": link,
                "body.url": link | {"dictionary": "hooks"},
            },
            "generation": {
                "deterministic": True,
                "database": "none",
                "max-examples": WALKS if for_longer else EXAMPLES,
                "no-shrink": True,
            },
            "phases": phases,
            "checks": {"enabled": True},
            "operations": [
                {  # the city must outlive the test
                    "include-name": "DELETE /v1/links/{link_id}",
                    "parameters": {"path.link_id": link | {"dictionary": "spare"}},
                }
            ],
        }
    )


# ---------------------------------------------------------------- the test


@pytest.fixture
def settings(settings: Settings) -> Settings:
    # With a default zone, because no schema can say that only a new link needs one.
    update = {
        "default_zone": "UTC",
        "rate_limit": 0,
        "log_level": "error",
        "stream_seconds": 0.05,
        "webhook_hosts": "control.example",
    }
    return settings.model_copy(update=update)


@pytest.fixture
def city(service: FastAPI, stored_city: City, openapi_document: dict[str, Any]) -> Iterator[FastAPI]:
    """Yield a service with links, counts, active models and forecasts, past ones too."""
    service.openapi_schema = copy.deepcopy(openapi_document)  # no setting changes it, and it takes a second to make
    with TestClient(service, headers={"X-API-Key": ADMIN_KEY}) as client:
        post(client, rows(CITY, NEWEST, NEWEST + 1))
        for spare in SPARE:
            client.put(f"/v1/links/{spare}", json={"zone": "UTC"}).raise_for_status()
        client.post("/v1/admin/webhooks", json=HOOK).raise_for_status()
    yield service
    shutdown_lifespans()  # schemathesis starts the service for itself


def failures_of(event: events.ScenarioFinished) -> Iterator[str]:
    """Yield a description of each failure in a scenario, with its request and response."""
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.status == Status.FAILURE:
                assert check.failure_info is not None
                answer = event.recorder.interactions[case_id].response
                shown = "" if answer is None else f"{answer.status_code} {answer.text[:500]}"
                message, sample = check.failure_info.failure.message, check.failure_info.code_sample
                yield f"{check.name}: {message[:500]}\n{sample[:800]}\n-> {shown}\n"


class Run:
    """The results of running schemathesis: failures, tried calls, and followed links."""

    def __init__(self, app: FastAPI, config: SchemathesisConfig, *, is_narrowed: bool = False) -> None:
        self.failures, self.phases, self.checks = list[str](), set[str](), set[str]()
        documented = [(path, method) for path, methods in app.openapi()["paths"].items() for method in methods]
        self.asked = [f"{method.upper()} {path}" for path, method in documented]
        self.good = Counter[str]()
        self.followed: set[tuple[str, str]] = set()
        if is_narrowed:
            schema = schemathesis.openapi.from_dict(narrowed(app.openapi()), config=config)
            schema.app = app
        else:
            schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)

        @schema.hook
        def map_body(context: Any, body: Any) -> Any:
            close_rings(body)
            return body

        @schema.hook
        def filter_case(context: Any, case: Any) -> bool:
            return not is_tried_again(case)

        @schema.hook
        def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
            return not is_beyond_schemas(failure, case, response)

        for event in from_schema(schema).execute():
            if isinstance(event, events.FatalError):
                raise event.exception
            if isinstance(event, events.NonFatalError):
                self.failures.append(f"{event.label}: {event.value}")
            if isinstance(event, events.ScenarioFinished):
                self._note(event)

    def _note(self, event: events.ScenarioFinished) -> None:
        recorder = event.recorder
        self.failures += failures_of(event)
        self.phases.add(event.phase.value)
        self.checks |= {check.name for ran in recorder.checks.values() for check in ran}
        for case_id, interaction in recorder.interactions.items():
            if interaction.response is not None and interaction.response.status_code < 300:
                case = recorder.cases[case_id]
                self.good[case.value.operation.label] += 1
                if case.transition is not None and case.parent_id is not None:
                    self.followed.add(
                        (recorder.cases[case.parent_id].value.operation.label, case.value.operation.label)
                    )

    def summary(self) -> str:
        return f"{len(self.failures)} failures; the first:\n\n" + "\n".join(self.failures[:10])


# On PostgreSQL, which refuses more; what follows is asked of SQLite.
@on_postgresql
@pytest.mark.parametrize(
    ("ways", "share"),
    [(BOUNDARIES, 0.5), (PHASES - BOUNDARIES, 0.85)],
    ids=["boundaries", "all that is drawn"],
)
def test_every_answer_is_as_documented(city: FastAPI, ways: set[str], share: float) -> None:
    run = Run(city, configuration(ways), is_narrowed=ways == BOUNDARIES)
    assert not run.failures, run.summary()
    # The absence of failures is meaningful only if many calls were tried.
    assert run.phases >= ways
    assert run.checks >= CHECKS
    # Boundaries name few links and runs that are there; what is drawn must find some for nearly every operation.
    assert len([operation for operation in run.asked if run.good[operation]]) >= share * len(run.asked)


@on_sqlite  # what follows what is no matter of the database
def test_calls_that_follow_each_other_are_as_documented(city: FastAPI) -> None:
    run = Run(city, configuration({"stateful"}, for_longer=True))
    assert not run.failures, run.summary()
    assert run.phases >= {"stateful"}
    # Which of them, is drawn; that each can be followed, is shown below.
    assert len({(follows.call, follows.then) for follows in RESPONSE_LINKS} & run.followed) >= len(RESPONSE_LINKS) // 2


@on_sqlite
def test_every_link_of_the_document_leads_somewhere(city: FastAPI) -> None:
    operations = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in city.openapi()["paths"].items()
        for method, operation in methods.items()
    }
    firsts = {
        "PUT /v1/links/{link_id}": {},
        "POST /v1/counts": {"counts": rows(CITY, NEWEST - 1, NEWEST)[:1]},
        "POST /v1/admin/keys": {"name": "next", "scopes": ["read"]},
        "POST /v1/admin/retrain": {"links": LINK_IDS[:1]},
        "POST /v1/admin/webhooks": HOOK,
    }
    followed = set()
    with TestClient(city, headers={"X-API-Key": ADMIN_KEY}) as client:

        def ask(method: str, path: str, body: Any) -> Any:
            answer = client.request(method, path, json=body)
            assert answer.status_code < 300, f"{method} {path}: {answer.text}"
            return answer.json() if answer.content else None

        def new_run() -> int:
            """Create a run after cancelling others, because a link can be in one run at a time."""
            for run in ask("GET", "/v1/admin/retrain", None)["runs"]:
                if run["state"] == "queued":
                    ask("DELETE", f"/v1/admin/retrain/{run['run_id']}", None)
            return int(ask("POST", "/v1/admin/retrain", {"links": LINK_IDS[1:2]})["run_id"])

        for method, path, operation in operations.values():
            for answer in operation["responses"].values():
                for link in answer.get("links", {}).values():
                    body = firsts.get(f"{method} {path}")
                    result = ask(method, path.format(link_id="spare-1", run_id=new_run()), body)
                    sources = {"$request.body": body, "$response.body": result}
                    values = {name: looked_up(value, sources) for name, value in link.get("parameters", {}).items()}
                    then, where, _ = operations[link["operationId"]]
                    given = link.get("requestBody", firsts.get(f"{then} {where}"))
                    ask(then, where.format(**values), looked_up(given, sources))
                    followed.add((f"{method} {path}", f"{then} {where}"))
    assert followed == {(follows.call, follows.then) for follows in RESPONSE_LINKS}


def looked_up(value: Any, sources: dict[str, Any]) -> Any:
    """Replace runtime expressions by values of the request and the response."""
    if isinstance(value, dict):
        return {name: looked_up(inner, sources) for name, inner in value.items()}
    if isinstance(value, list):
        return [looked_up(inner, sources) for inner in value]
    source, pointed, pointer = str(value).partition("#/")
    if not pointed:
        return value
    found = sources[source]
    for step in pointer.split("/"):
        found = found[int(step) if isinstance(found, list) else step]
    return found
