"""The OpenAPI document: names, summaries and examples of every call."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

Document = dict[str, Any]


@pytest.fixture(scope="module")
def operations(openapi_document: Document) -> dict[str, Document]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in openapi_document["paths"].items()
        for method, operation in methods.items()
    }


def resolved(document: Document, schema: Document) -> Document:
    """Return a schema, or the one that it refers to."""
    reference = schema.get("$ref")
    return schema if reference is None else document["components"]["schemas"][reference.rpartition("/")[2]]


def examples_of(document: Document, content: Document) -> list[Any]:
    """Return the examples of one media type: its own, or those of its schema and of the alternatives in it."""
    if "example" in content:
        return [content["example"]]
    schema = resolved(document, content["schema"])
    alternatives = [resolved(document, one) for one in schema.get("anyOf", schema.get("oneOf", []))]
    return [example for one in (schema, *alternatives) for example in one.get("examples", [])]


def schemas_with_examples(part: Any) -> Iterator[Document]:
    """Yield each schema in a part of the document that has a list of examples."""
    if isinstance(part, dict):
        if isinstance(part.get("examples"), list):
            yield part
        for inner in part.values():
            yield from schemas_with_examples(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from schemas_with_examples(inner)


def violations(document: Document, schema: Document, example: Any) -> list[str]:
    validator = Draft202012Validator({**schema, "components": document["components"]})
    return [f"{example!r}: {error.message}" for error in validator.iter_errors(example)]


def test_operation_ids_are_short_and_unique(operations):
    names = [operation["operationId"] for operation in operations.values()]
    assert len(set(names)) == len(names) > 30
    assert not [name for name in names if not re.fullmatch("[a-z0-9_]{1,40}", name)]
    assert operations["GET /v1/links/{link_id}/forecast"]["operationId"] == "get_link_forecast"


def test_every_call_has_a_summary_and_a_description(operations):
    assert not [call for call, one in operations.items() if not (one.get("summary") and one.get("description"))]


def test_every_body_has_an_example(openapi_document, operations):
    bodies = {call: one["requestBody"]["content"] for call, one in operations.items() if "requestBody" in one}
    assert len(bodies) > 5
    for call, contents in bodies.items():
        assert any(examples_of(openapi_document, content) for content in contents.values()), call


def test_every_good_answer_has_an_example(openapi_document, operations):
    for call, operation in operations.items():
        for status, answer in operation["responses"].items():
            for media_type, content in answer.get("content", {}).items() if status.startswith("2") else ():
                assert examples_of(openapi_document, content), (call, status, media_type)


def test_every_example_follows_its_schema(openapi_document, operations):
    document = openapi_document
    schemas = list(schemas_with_examples(document))
    assert len(schemas) > 50
    found = [
        problem for one in schemas for example in one["examples"] for problem in violations(document, one, example)
    ]
    for operation in operations.values():
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                if "example" in content:
                    found += violations(document, content["schema"], content["example"])
    assert not found
