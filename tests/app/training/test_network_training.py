"""Training links in their networks: gathered counts, real artifacts, runs of the worker, and a refresh."""

import json
import threading
from dataclasses import replace
from datetime import date
from typing import get_args

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from typer.testing import CliRunner

from app.cli import cli
from app.core.slots import SlotGrid, zone_named
from app.counts.series import LinkSeries
from app.demo.city import links_geojson, sample_city, write_csv
from app.links.tables import folder_name
from app.registry.folder_store import FolderStore
from app.training.aligned_counts import LinkTopology, align_counts, covering_days, junctions
from app.training.heartbeat import Heartbeat
from app.training.network_options import NetworkTraining
from app.training.network_stage import keep_series, kept_series
from app.training.network_training import train_networks
from app.training.schemas import ContextPart
from app.training.stage_progress import PARTS
from app.worker.worker import Worker
from model.artifacts.link_models import load_model
from model.artifacts.network_models import load_network
from model.link_model.training_plan import TrainingPlan
from model.network_model.context import ContextParts
from model.network_model.judging import judge
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.training import train_network
from tests.support.city import SLOTS, post, rows
from tests.support.databases import on_sqlite
from tests.support.waiting import WAIT_SECONDS, wait_until

DAYS, HELD_OUT, YOUNG = 15, 4, 3
SMALL = NetworkPlan(metric_rows=300, network_rows=1500, max_iter=1, mu=(1e-3,), ridge=(3000.0,), own_ridge=(10000.0,))
ALONE = TrainingPlan(lags=12, n_neighbors=8, held_out_days=HELD_OUT, max_iter=2, mu=(1e-3,))
BERLIN = zone_named("Europe/Berlin")


def city_series(days=DAYS, n=4, young=True):
    """The links of the sample city; the last of them, if it is to be young, began three days before the end."""
    city = sample_city(links=n, days=days, seed=5)
    zone = zone_named(city.zone)
    links = [
        LinkSeries(link_id, city.grid, zone, city.first_slot, counts, np.zeros(len(counts), dtype=bool))
        for link_id, counts in city.counts.items()
    ]
    if young:
        cut = (days - YOUNG) * SLOTS
        one = links[-1]
        links[-1] = replace(one, first=one.first + cut, counts=one.counts[cut:], suspect=one.suspect[cut:])
    whereabouts = {link.link_id: LinkTopology(link.geometry, tuple(link.upstream)) for link in city.links}
    return links, whereabouts


def how(algorithm):
    return NetworkTraining(algorithm, SMALL, ALONE)


def plain_link(link_id, first, counts, grid=None, zone=BERLIN):
    values = np.asarray(counts, dtype=float)
    return LinkSeries(link_id, grid or SlotGrid(), zone, first, values, np.zeros(len(values), dtype=bool))


def point(longitude, latitude):
    return LinkTopology({"type": "Point", "coordinates": [longitude, latitude]})


def line(*positions):
    return LinkTopology({"type": "LineString", "coordinates": [list(position) for position in positions]})


class TestGather:
    def test_aligns_links_from_a_local_midnight_and_leaves_suspect_counts_out(self):
        grid = SlotGrid()
        midnight = grid.local_day(date(2025, 9, 1), BERLIN).start
        one = plain_link("A", midnight + 5, np.arange(100.0) % 7)
        one.suspect[3] = True
        two = plain_link("B", midnight + 40, [*np.arange(50.0) % 5, 9999.0])
        series = align_counts([one, two], {"B": LinkTopology(capacity=100.0)}).series
        assert (series.first, series.counts.shape) == (midnight, (2, 105))
        assert series.calendar.slot_of_day[0] == 0
        assert np.isnan(series.counts[0, :5]).all()
        assert np.isnan(series.counts[0, 8])  # marked
        assert series.counts[0, 9] == 4.0
        assert np.isnan(series.counts[1, 90])  # above the capacity
        assert np.isnan(series.counts[1, 91:]).all()
        assert series.days == 2

    def test_a_day_of_25_hours_is_one_day_and_a_holiday_a_sunday(self):
        grid = SlotGrid()
        first = grid.local_day(date(2025, 10, 1), BERLIN).start
        link = plain_link("A", first, np.arange(26 * SLOTS + 4.0) % 11)
        series = align_counts([link], {}).series
        assert (series.holidays, series.days) == ("DE", 26)
        lengths = np.bincount(series.calendar.day - series.calendar.day[0])
        assert lengths[25] == 100  # the clocks go back on 26 October
        assert set(lengths[:25]) == {96}
        third = series.calendar.day == series.calendar.day[0] + 2
        assert set(series.calendar.weekday[third]) == {6}  # 3 October, a Friday
        ordinary = align_counts([link], {}, "off").series
        assert set(ordinary.calendar.weekday[third]) == {4}
        # The day has four slots more than others: 7 times 96 slots from its end begin at one o'clock, a week before.
        assert covering_days([plain_link("A", first, link.counts[:-4])], series, 7) == 7
        assert covering_days([plain_link("A", first, link.counts[:-5])], series, 7) == 8

    def test_held_out_days_of_links_that_end_within_a_day_are_covered(self):
        first = SlotGrid().local_day(date(2025, 9, 1), BERLIN).start
        links = [plain_link("A", first, np.ones(10 * SLOTS)), plain_link("B", first, np.ones(9 * SLOTS + 50))]
        series = align_counts(links, {}).series
        assert covering_days(links[:1], series, 4) == 4
        assert covering_days(links, series, 4) == 5
        silent = plain_link("C", first, np.ones(5 * SLOTS))
        assert covering_days([links[0], silent], series, 4) == 4

    def test_links_whose_lines_end_at_the_same_place_share_a_junction(self):
        whereabouts = {"a-1": line((7.0, 54.0), (7.1, 54.1)), "a-2": line((7.2, 54.0), (7.10001, 54.10001))}
        whereabouts["a-3"] = line((7.1, 54.1), (7.0, 54.0))
        assert junctions(["a-1", "a-2", "a-3"], whereabouts).tolist() == [0, 0, 1]

    def test_detectors_of_a_site_share_its_junction_unless_they_lie_far_apart(self):
        near = {"0970-1": point(145.09159, -37.86703), "0970-3": point(145.09195, -37.86735)}
        assert junctions(["0970-1", "0970-3", "2200-1"], near).tolist() == [0, 0, 1]
        far = {"road-1": point(145.0, -37.8), "road-2": point(145.2, -37.8), "x": point(145.2, -37.8)}
        assert junctions(["road-1", "road-2", "x", "y"], far).tolist() == [0, 1, 1, -1]
        assert junctions(["Ba", "Cf"], {}).tolist() == [-1, -1]

    def test_upstream_links_are_places_and_strangers_are_left_out(self):
        first = SlotGrid().local_day(date(2025, 9, 1), BERLIN).start
        links = [plain_link(link_id, first, np.ones(SLOTS)) for link_id in "AB"]
        series = align_counts(links, {"B": LinkTopology(upstream=("A", "Z"))}).series
        assert series.upstream == ((), (0,))

    def test_what_is_kept_for_another_process_is_the_same(self, tmp_path):
        series = align_counts(*city_series()).series
        keep_series(tmp_path / "phase", series)
        kept = kept_series(tmp_path / "phase")
        np.testing.assert_array_equal(kept.counts, series.counts)
        for name in ("weekday", "slot_of_day", "day"):
            np.testing.assert_array_equal(getattr(kept.calendar, name), getattr(series.calendar, name))
        np.testing.assert_array_equal(kept.junction, series.junction)
        for name in ("link_ids", "upstream", "first", "holidays"):
            assert getattr(kept, name) == getattr(series, name)
        assert kept.calendar.slots_per_day == series.calendar.slots_per_day


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Four links trained as NETWORK, the last of them with three days of counts."""
    folder = tmp_path_factory.mktemp("network")
    links, whereabouts = city_series()
    phases = []
    report = lambda part, _done, _of: phases.append(part)  # noqa: E731
    outcomes = {o.link_id: o for o in train_networks(links, folder, how("NETWORK"), whereabouts, jobs=1, report=report)}
    return folder, links, whereabouts, outcomes, phases


@pytest.mark.journey
class TestNetwork:
    def test_one_network_and_a_small_artifact_a_link(self, network):
        folder, links, _, outcomes, phases = network
        assert {o.state for o in outcomes.values()} == {"trained"}, outcomes
        assert sorted(set(phases)) == sorted(PARTS)
        names = sorted(path.name for path in folder.iterdir())
        assert names == sorted([".networks", *(link.link_id for link in links)])
        [fingerprint] = [path.name for path in (folder / ".networks").iterdir()]
        for link in links:
            model, about = load_model(folder / folder_name(link.link_id))
            assert isinstance(model, NetworkModel)
            assert (about["link_id"], about["network"]) == (link.link_id, fingerprint)
            assert (about["plan"]["algorithm"], about["plan"]["held_out_days"]) == ("NETWORK", HELD_OUT)
            assert about["trained_to"] == link.grid.start(link.first + len(link)).isoformat()

    def test_everything_is_measured_on_the_same_slots(self, network):
        _, links, _, outcomes, _ = network
        for link in links[:-1]:
            figures = outcomes[link.link_id].about["held_out"]
            assert set(figures) == {"candidate", "base", "KR", "profile", "last_week"}
            used = {measures["rmse"]["n_used"] for measures in figures.values()}
            assert len(used) == 1
            assert used.pop() > 0.8 * HELD_OUT * SLOTS
            assert figures["candidate"]["rmse"]["value"] < 1.3 * figures["profile"]["rmse"]["value"]
            assert 0.6 < figures["candidate"]["coverage"]["value"] <= 1.0

    def test_a_link_of_three_days_is_judged_by_its_own_profile_of_the_days_before(self, network):
        _, links, _, outcomes, _ = network
        about = outcomes[links[-1].link_id].about
        figures = about["held_out"]
        assert about["young"]
        assert set(figures) == {"candidate", "base", "profile", "last_week"}
        assert figures["candidate"]["rmse"]["n_used"] == figures["profile"]["rmse"]["n_used"] > SLOTS
        assert figures["candidate"]["rmse"]["value"] < figures["profile"]["rmse"]["value"]
        assert figures["last_week"]["rmse"]["value"] is None

    def test_a_model_that_learnt_the_held_out_days_is_judged_without_them(self, network):
        folder, links, whereabouts, _, _ = network
        series = align_counts(links, whereabouts).series
        plan = replace(SMALL, held_out_days=HELD_OUT)
        link_id = links[0].link_id
        model, _ = load_model(folder / link_id)
        model = replace(model, shares=np.array([0.5, 0.5]))
        said = judge(series, {link_id: model}, plan)
        cut = series.first + said.first
        memory = model.memory
        late = memory.slots >= cut
        assert late.any()
        steps = memory.missed.steps.copy()
        steps[late] = 30000
        other = replace(model, memory=replace(memory, missed=replace(memory.missed, steps=steps)))
        np.testing.assert_array_equal(judge(series, {link_id: other}, plan).expected, said.expected)
        steps[~late] = 30000
        changed = replace(model, memory=replace(memory, missed=replace(memory.missed, steps=steps)))
        assert np.nanmax(np.abs(judge(series, {link_id: changed}, plan).expected - said.expected)) > 0
        assert np.isnan(said.expected[1:]).all()
        assert not np.isnan(said.expected[0]).any()

    def test_one_day_is_enough_for_a_model(self):
        links, whereabouts = city_series()
        cut = (DAYS - 1) * SLOTS
        one = links[0]
        links[0] = replace(one, first=one.first + cut, counts=one.counts[cut:], suspect=one.suspect[cut:])
        result = train_network(align_counts(links, whereabouts).series, replace(SMALL, held_out_days=HELD_OUT))
        model = result.models[0]
        assert model is not None
        assert not model.own.any()
        assert model.bands is not None


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """Four links trained as best, interrupted after the first and resumed."""
    folder = tmp_path_factory.mktemp("best")
    links, whereabouts = city_series()
    training = train_networks(links, folder, how("best"), whereabouts, jobs=1)
    first = next(training)
    training.close()  # as an interruption does
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith(".network-"))
    phases = []
    report = lambda part, _done, _of: phases.append(part)  # noqa: E731
    rest = list(train_networks(links, folder, how("best"), whereabouts, jobs=1, resume=True, report=report))
    return folder, links, whereabouts, first, left, phases, {o.link_id: o for o in rest}


@pytest.mark.journey
class TestBest:
    def test_resume_goes_on_with_the_network_that_was_learnt(self, best):
        folder, links, whereabouts, first, left, phases, rest = best
        assert len(left) == 1
        assert phases == []
        assert rest[first.link_id].state == "kept"
        assert [o.state for o in rest.values()].count("trained") == len(links) - 1
        assert not list(folder.glob(".network-*"))
        again = list(train_networks(links, folder, how("best"), whereabouts, jobs=1, resume=True))
        assert {o.state for o in again} == {"kept"}

    def test_what_wins_on_the_held_out_slots_is_kept(self, best):
        folder, links, _, _, _, _, outcomes = best
        for link in links[:-1]:
            model, about = load_model(folder / link.link_id)
            assert about == outcomes[link.link_id].about
            figures = about["held_out"]
            assert set(figures) == {"candidate", "NETWORK", "base", "KR_SML", "KR", "profile", "last_week"}
            errors = {name: figures[name]["rmse"]["value"] for name in ("NETWORK", "base", "KR_SML", "KR")}
            winner = about["chosen"].partition(":")[0]
            assert errors[winner] == min(errors.values())
            assert model.algorithm == {"base": "NETWORK"}.get(winner, winner)
            if winner != "KR":
                assert figures["candidate"]["rmse"]["value"] == errors[winner]
            if winner == "base":
                assert not model.shares.any()
            assert len({measures["rmse"]["n_used"] for measures in figures.values()}) == 1
            assert figures["candidate"]["coverage"]["value"] is not None

    def test_a_young_link_gets_the_networks(self, best):
        folder, links, *_ = best
        model, about = load_model(folder / links[-1].link_id)
        assert model.algorithm == "NETWORK"
        assert set(about["held_out"]) == {"candidate", "NETWORK", "base", "profile", "last_week"}

    def test_without_a_network_best_is_what_a_link_learns_by_itself(self, tmp_path):
        links, _ = city_series(n=1, young=False)
        [failed] = train_networks(links, tmp_path, how("NETWORK"), {}, jobs=1)
        assert (failed.state, failed.about) == ("failed", None)
        assert "a network of 1 link is none" in failed.reason
        [alone] = train_networks(links, tmp_path, how("best"), {}, jobs=1)
        assert alone.state == "trained"
        assert alone.about["plan"]["algorithm"] in ("KR_SML", "KR")
        assert "there is no network model" in alone.about["chosen"]

    def test_a_span_that_is_too_short_is_each_links_failure(self, tmp_path):
        links, whereabouts = city_series(days=6, n=2, young=False)
        outcomes = list(train_networks(links, tmp_path, how("NETWORK"), whereabouts, jobs=1))
        assert {o.state for o in outcomes} == {"failed"}
        assert {o.reason for o in outcomes} == {"6 days of counts are too few for a network; at least 8 are needed"}

    def test_links_of_another_zone_are_a_network_of_their_own(self, tmp_path):
        links, whereabouts = city_series(n=3, young=False)
        links[2] = replace(links[2], zone=zone_named("Europe/Paris"))
        outcomes = {o.link_id: o for o in train_networks(links, tmp_path, how("NETWORK"), whereabouts, jobs=1)}
        assert [outcomes[link.link_id].state for link in links] == ["trained", "trained", "failed"]


@pytest.mark.journey
class TestCommand:
    def test_trains_the_best_by_default_also_for_one_link(self, tmp_path):
        file = tmp_path / "link.csv"
        write_csv(sample_city(links=1, days=13, seed=5), file)
        given = ["--zone", "Europe/Berlin", "--held-out-days", "3", "--lags", "12", "--jobs", "1", "--json"]
        done = CliRunner().invoke(cli, ["train", str(file), *given, "--output", str(tmp_path / "models")])
        assert done.exit_code == 0, done.stderr
        [found] = json.loads(done.stdout)
        assert "there is no network model: a network of 1 link is none" in found["about"]["chosen"]

    def test_trains_a_network_from_a_file(self, tmp_path):
        file = tmp_path / "city.csv"
        write_csv(sample_city(links=3, days=13, seed=5), file)
        given = ["--algorithm", "NETWORK", "--zone", "Europe/Berlin", "--held-out-days", "3", "--jobs", "1"]
        given += ["--context", "deviations, profile,network"]
        done = CliRunner().invoke(cli, ["train", str(file), *given, "--output", str(tmp_path / "models"), "--json"])
        assert done.exit_code == 0, done.stderr
        assert "network: the context of each day (0% done)" in done.stderr
        assert "network: the metric, about " in done.stderr
        assert " s left (35% done)" in done.stderr
        found = json.loads(done.stdout)
        assert {one["about"]["plan"]["algorithm"] for one in found} == {"NETWORK"}
        model, about = load_model(tmp_path / "models" / found[0]["link_id"])
        assert model.network.parts.names == about["plan"]["parts"] == ["profile", "deviations", "network"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["--algorithm", "NETWORK", "--context", "lags,weather"], "context=['lags', 'weather'] is refused"),
            (["--algorithm", "best", "--context", ","], "context=[] is refused; it must be some of lags, yesterday"),
            (
                ["--algorithm", "KR", "--context", "lags"],
                "context='lags' is refused; it concerns the algorithms NETWORK and best alone",
            ),
        ],
    )
    def test_a_context_that_is_none_is_refused_by_name(self, tmp_path, given, message):
        done = CliRunner().invoke(cli, ["train", "x.csv", *given, "--output", str(tmp_path)])
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())

    def test_an_algorithm_that_is_none_is_refused_with_those_there_are(self, tmp_path):
        done = CliRunner().invoke(cli, ["train", "x.csv", "--algorithm", "LSTM", "--output", str(tmp_path)])
        assert done.exit_code == 2
        assert "algorithm='LSTM' is refused" in done.stderr
        assert "NETWORK, best" in " ".join(done.stderr.split())


QUICK = {"held_out_days": 4, "max_iter": 1, "mu": [1e-3]}
CONTEXT = ["lags", "last_week", "profile", "deviations", "day_type", "network"]


@pytest.fixture(scope="module")
def processes():
    """Processes for networks: runs share them, because to import what they need takes longer than the work."""
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture
def worker(client, settings, processes):
    worker = Worker(client.app.state.engine, settings.model_copy(update={"retrain_jobs": 1}))
    yield worker
    worker.close()


def ask(client, status=202, **body):
    answer = client.post("/v1/admin/retrain", json={"links": "all", **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def run(client, worker, **body):
    number = ask(client, **body)["run_id"]
    assert worker.work_once()
    shown = client.get(f"/v1/admin/retrain/{number}").json()
    assert shown["state"] == "succeeded", shown
    return {link["link_id"]: link for link in shown["links"]}


class TestRequests:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"algorithm": "NETWORK", "parameters": {"lags": 12}}, "parameters.lags='12' is refused"),
            ({"algorithm": "NETWORK", "parameters": {"bandwidth": 2.0}}, "parameters.bandwidth='2.0' is refused"),
            (
                {"algorithm": "KR", "parameters": {"context": ["lags"]}},
                "it must be left out: it concerns NETWORK and best alone",
            ),
            ({"algorithm": "best", "parameters": {"context": ["rain"]}}, "parameters.context.0='rain' is refused"),
            ({"algorithm": "best", "parameters": {"context": []}}, "parameters.context='[]' is refused"),
            ({"refresh": True}, "refresh='true' is refused; it needs the algorithm NETWORK"),
            ({"algorithm": "best", "refresh": True}, "refresh='true' is refused"),
            (
                {"algorithm": "NETWORK", "refresh": True, "parameters": {"mu": [1.0]}},
                "parameters.mu='[1.0]' is refused; it must be left out: a refresh learns nothing anew",
            ),
        ],
    )
    @on_sqlite
    def test_what_does_not_concern_a_network_is_refused_by_name(self, client, put_link, body, message):
        put_link("A")
        assert message in ask(client, 422, **body)["detail"]

    def test_a_refresh_needs_a_network_model(self, client, put_link):
        put_link("A")
        assert "there is no active network model" in ask(client, 409, algorithm="NETWORK", refresh=True)["detail"]

    def test_best_takes_the_parameters_of_both(self, client, put_link):
        put_link("A")
        given = {"lags": 12, "held_out_days": 4, "context": list(get_args(ContextPart))}
        assert given["context"] == ContextParts().names
        assert ask(client, algorithm="best", parameters=given)["parameters"] == given


@pytest.mark.journey
@on_sqlite
def test_a_run_of_best_reports_while_its_network_learns(client, city, worker, monkeypatch):
    entered, shares = [], []
    enter = Heartbeat.enter_stage

    def recorded(heartbeat, name, share=None):
        shares.extend(before() for _, before in entered)  # what a heartbeat would have stored last
        entered.append((name, share))
        enter(heartbeat, name, share)

    monkeypatch.setattr(Heartbeat, "enter_stage", recorded)
    links = run(client, worker, parameters=QUICK | {"lags": 12, "n_neighbors": 8})
    assert set(links) == set(city.counts)
    assert {link["state"] for link in links.values()} == {"done"}, links
    assert [name for name, _ in entered] == ["network", "links"]
    (share,) = shares
    assert 0.85 < share < 1.0  # of the last step that was begun


@pytest.mark.journey
@on_sqlite
class TestRuns:
    @pytest.fixture
    def city(self, client):
        city = sample_city(links=3, days=DAYS + 1, seed=5)
        assert client.post("/v1/links", json=links_geojson(city)).status_code in (200, 201)
        old, young = list(city.counts)[:2], list(city.counts)[2:]
        post(client, rows(city, 0, DAYS * SLOTS, old))
        post(client, rows(city, (DAYS - YOUNG) * SLOTS, DAYS * SLOTS, young))
        return city

    def test_learnt_from_all_links_compared_and_refreshed(self, client, city, worker, settings):
        one, two, young = city.counts
        store = FolderStore(settings.model_store)
        given = QUICK | {"context": CONTEXT}
        links = run(client, worker, links=[one], algorithm="NETWORK", parameters=given, activate="always")
        assert set(links) == {one}
        assert set(links[one]["figures"]) == {"candidate", "base", "KR", "profile", "last_week"}
        before, about = load_model(store.path(f"{one}/1"))
        assert set(before.network.link_ids) == set(city.counts)
        assert before.network.parts.names == about["plan"]["parts"] == CONTEXT
        assert about["held_out"]["candidate"]["rmse"]["n_used"] > 300
        assert client.get(f"/v1/links/{one}/models").json()["models"][0]["algorithm"] == "NETWORK"

        # A link trained by itself is compared with the network model that it has.
        quick = QUICK | {"lags": 12, "n_neighbors": 8}
        links = run(client, worker, links=[one], algorithm="KR", parameters=quick | {"mu": [1.0]})
        figures = links[one]["figures"]
        assert set(figures) == {"candidate", "KR", "profile", "last_week", "active"}
        assert figures["active"]["rmse"] is not None

        # A day later its counts join the memory, and so do links that have no model yet.
        post(client, rows(city, DAYS * SLOTS, (DAYS + 1) * SLOTS))
        links = run(client, worker, algorithm="NETWORK", refresh=True, parameters={"days": 28})
        assert {link["outcome"] for link in links.values()} == {"activated"}
        assert set(links) == {one, two, young}
        assert links[one]["reason"].startswith("refreshed: counts up to 2025-09-16T22:00:00")
        after, fresh = load_model(store.path(f"{one}/{links[one]['version']}"))
        assert after.network.parts.names == CONTEXT
        np.testing.assert_array_equal(after.own, before.own)
        np.testing.assert_array_equal(after.network.base.weights, before.network.base.weights)
        np.testing.assert_array_equal(after.network.components, before.network.components)
        assert after.memory.slots.max() - before.memory.slots.max() == SLOTS
        assert not np.array_equal(after.profile.expected_counts, before.profile.expected_counts)
        assert fresh["held_out"] == about["held_out"]
        assert "carried over" in fresh["refreshed"]["held_out"]
        new, _ = load_model(store.path(f"{young}/1"))
        assert new.network.link_ids[new.link] == young
        assert load_network(store.root / ".networks" / fresh["network"]).link_ids == after.network.link_ids

    def test_a_cancelled_network_ends_at_once(self, client, city, worker, settings):
        # So many steps that it would take minutes.
        slow = {"held_out_days": 4, "max_iter": 500, "mu": [1e-9, 1e-8, 1e-7, 1e-6, 1e-5]}
        number = ask(client, algorithm="NETWORK", parameters=slow)["run_id"]
        thread = threading.Thread(target=worker.work_once)
        thread.start()
        wait_until(lambda: list(settings.model_store.glob(".training-*/.network-*/series.json")))
        assert client.delete(f"/v1/admin/retrain/{number}").status_code == 200
        thread.join(timeout=WAIT_SECONDS)
        assert not thread.is_alive()  # what is under way takes minutes, and is not waited for
        shown = client.get(f"/v1/admin/retrain/{number}").json()
        assert (shown["state"], shown["progress"]["cancelled"]) == ("cancelled", 3)
        assert not list(settings.model_store.glob(".training-*"))
