"""The journey of a city: links in, counts in, models trained and activated, half a day posted slot by slot."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.demo.city import City, links_geojson, sample_city, write_csv
from tests.support.databases import on_postgresql
from tests.support.services import environment, running_service

TRAINED_DAYS, SLOTS = 14, 96
POSTED = 48  # slots, one by one
LINKS = 2


@pytest.fixture(scope="module")
def city() -> City:
    return sample_city(links=LINKS, days=TRAINED_DAYS + 1, seed=11)


# The README's examples and the demo go the same way on SQLite.
@on_postgresql
@pytest.mark.usefixtures("fresh_settings")
def test_a_city_from_first_link_to_accuracy(database_url, tmp_path, city):
    history = tmp_path / "history.csv.gz"
    cut = TRAINED_DAYS * SLOTS
    first = {link_id: counts[:cut] for link_id, counts in city.counts.items()}
    write_csv(City(**{**city.__dict__, "counts": first}), history)
    with running_service(database_url, tmp_path) as service:
        assert service.request("POST", "/v1/links", links_geojson(city))[0] == 200
        train = (
            "train",
            history,
            "--zone",
            city.zone,
            "--algorithm",
            "KR_SML",
            "--lags",
            12,
            "--register",
            "--activate",
            "--jobs",
            "1",
        )
        for command in (("import", history), train):
            # As processes of their own, these commands are run by the README's examples and by test_own_counts.
            done = CliRunner().invoke(cli, [*map(str, command)], env=environment(database_url, tmp_path))
            assert done.exit_code == 0, done.output
        result = {link_id: [] for link_id in city.counts}
        for i in range(cut, cut + POSTED):
            start = city.grid.start(city.first_slot + i).strftime("%Y-%m-%dT%H:%M:%SZ")
            rows = [
                {"link_id": link_id, "slot_start": start, "count": int(counts[i])}
                for link_id, counts in city.counts.items()
                if not math.isnan(counts[i])
            ]
            for link_id in city.counts:
                status, answer = service.request("GET", f"/v1/links/{link_id}/forecast")
                assert status == 200
                result[link_id].append(answer["forecasts"][0])
            if rows:
                assert service.request("POST", "/v1/counts", {"counts": rows})[0] == 200
        for link_id, counts in city.counts.items():
            pairs = compare(city, result[link_id], counts)
            assert len(pairs) > 0.8 * POSTED
            errors = np.array([expected - came for expected, came in pairs])
            actual = np.array([came for _, came in pairs])
            _, accuracy = service.request("GET", f"/v1/links/{link_id}/accuracy?window=24h")
            assert accuracy["n_used"] == len(pairs)
            assert accuracy["rmse"] == pytest.approx(math.sqrt(np.mean(errors**2)), abs=1e-9)
            floor = actual >= 1
            assert accuracy["mare"] == pytest.approx(np.mean(np.abs(errors[floor]) / actual[floor]), abs=1e-9)
            assert accuracy["bias"] == pytest.approx(errors.mean(), abs=1e-9)
            assert list(accuracy)[:2] == ["rmse", "mare"]
            assert {one["method"] for one in result[link_id]} >= {"KR_SML"}
        _, network = service.request("GET", "/v1/accuracy?window=24h")
        assert len(network["links"]) == LINKS
        assert json.dumps(network).find("NaN") < 0


def compare(city, forecasts, counts):
    """Compare forecasts with counts outside the service; a slot that is forecast again after a gap counts once."""
    latest = {}
    for one in forecasts:
        latest[one["slot_start"]] = one["expected_count"]
    pairs = []
    for i in range(TRAINED_DAYS * SLOTS, TRAINED_DAYS * SLOTS + POSTED):
        start = city.grid.start(city.first_slot + i).strftime("%Y-%m-%dT%H:%M:%SZ")
        if start in latest and not math.isnan(counts[i]):
            pairs.append((latest[start], counts[i]))
    return pairs
