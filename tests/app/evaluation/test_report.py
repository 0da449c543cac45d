"""The layout of report.json, and that its page of documentation names all of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.evaluation.days import Choice
from app.evaluation.evaluate import make_report
from tests.support.evaluation import PLAN

DOCUMENT = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text()


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


@pytest.mark.journey
def test_every_key_is_documented(city_json):
    named = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    keys = set(keys_of(city_json)) | {"link_id", "reason"}
    assert len(keys) > 60
    assert not keys - named


def test_has_the_promised_layout(city_json):
    assert (city_json["format"], city_json["version"]) == ("flowcast-evaluation", 1)
    assert city_json["files"] == ["city.csv.gz"]  # the name alone: no folder of this machine
    assert len(city_json["links"]) == 2
    for link in city_json["links"]:
        assert [method["method"] for method in link["methods"]] == [
            *("KR", "KR_PCA", "MLKR", "KR_SML", "profile", "NETWORK", "best")
        ]
        for method in link["methods"]:
            assert method["test"]["rmse"] > 0
            assert method["test"]["mare"] > 0
        assert all(method["train"]["rmse"] > 0 for method in link["methods"][:5])
    assert city_json["options"]["held_out_days"] == 2
    assert city_json["options"]["held_out_days_reduced"] is True


def test_fingerprints_are_of_the_counts(city_json):
    assert len({link["data_fingerprint"] for link in city_json["links"]} | {city_json["data_fingerprint"]}) == 3


def test_named_links_are_listed_once():
    plan = replace(PLAN, links=" Ba, ,Cf,Ba,,")
    report, _ = make_report(["a.csv"], plan, 15, Choice([], [], []), [], 1.0)
    assert report.options.links == ["Ba", "Cf"]
