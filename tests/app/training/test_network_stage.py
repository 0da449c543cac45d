"""Training links in their networks: what is learnt together, what is selected, and the command."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import sample_city, write_csv
from app.links.tables import folder_name
from app.training.aligned_counts import LinkTopology, align_counts
from app.training.network_stage import NetworkTraining
from app.training.stage_progress import PARTS
from app.training.train_links import train_links
from model.aggregation.experts import EXPERT_NAMES
from model.aggregation.state import Aggregation
from model.artifacts.link_models import load_model
from model.link_model.training_plan import TrainingPlan
from model.network_model.held_out import forecast_held_out
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.training import train_network
from tests.support.city import SLOTS

DAYS, HELD_OUT, YOUNG = 15, 4, 3
ALL = ("ENSEMBLE", "ENSEMBLE with NETWORK", "ENSEMBLE with KR_SML", "ENSEMBLE before")
SMALL = NetworkPlan(metric_rows=300, network_rows=1500, max_iter=1, mu=(1e-3,), ridge=(3000.0,), own_ridge=(10000.0,))
ALONE = TrainingPlan(lags=12, n_neighbors=8, held_out_days=HELD_OUT, max_iter=2, mu=(1e-3,))


def city_series(days=DAYS, n=4, young=True):
    """Return the links of the sample city; the last one has three days of counts if ``young``."""
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
    topology = {link.link_id: LinkTopology(link.geometry, tuple(link.upstream)) for link in city.links}
    return links, topology


def how(algorithm):
    return NetworkTraining(algorithm, SMALL, ALONE)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Train four links as NETWORK, the last of them with three days of counts."""
    folder = tmp_path_factory.mktemp("network")
    links, topology = city_series()
    parts = []
    report = lambda part, _done, _of: parts.append(part)  # noqa: E731
    outcomes = {
        o.link_id: o for o in train_links(links, folder, how("NETWORK"), topology=topology, jobs=1, report=report)
    }
    return folder, links, topology, outcomes, parts


@pytest.mark.journey
class TestNetwork:
    def test_one_network_and_a_small_artifact_a_link(self, network):
        folder, links, _, outcomes, parts = network
        assert {o.state for o in outcomes.values()} == {"trained"}, outcomes
        assert sorted(set(parts)) == sorted(PARTS)
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

    def test_a_link_of_three_days_is_compared_with_its_profile_before_each(self, network):
        _, links, _, outcomes, _ = network
        about = outcomes[links[-1].link_id].about
        figures = about["held_out"]
        assert about["young"]
        assert set(figures) == {"candidate", "base", "profile", "last_week"}
        assert figures["candidate"]["rmse"]["n_used"] == figures["profile"]["rmse"]["n_used"] > SLOTS
        assert figures["candidate"]["rmse"]["value"] < figures["profile"]["rmse"]["value"]
        assert figures["last_week"]["rmse"]["value"] is None

    def test_held_out_days_are_left_out_of_a_model_that_learnt_them(self, network):
        folder, links, topology, _, _ = network
        series = align_counts(links, topology)
        plan = replace(SMALL, held_out_days=HELD_OUT)
        link_id = links[0].link_id
        model, _ = load_model(folder / link_id)
        model = replace(model, shares=np.array([0.5, 0.5]))
        judged = forecast_held_out(series, {link_id: model}, plan)
        cut = series.first + judged.first
        memory = model.memory
        late = memory.slots >= cut
        assert late.any()
        steps = memory.missed.steps.copy()
        steps[late] = 30000
        other = replace(model, memory=replace(memory, missed=replace(memory.missed, steps=steps)))
        np.testing.assert_array_equal(forecast_held_out(series, {link_id: other}, plan).expected, judged.expected)
        steps[~late] = 30000
        changed = replace(model, memory=replace(memory, missed=replace(memory.missed, steps=steps)))
        assert np.nanmax(np.abs(forecast_held_out(series, {link_id: changed}, plan).expected - judged.expected)) > 0
        assert np.isnan(judged.expected[1:]).all()
        assert judged.expected.shape[2] == plan.horizons
        assert not np.isnan(judged.expected[0]).any()

    def test_one_day_is_enough_for_a_model(self):
        links, topology = city_series()
        cut = (DAYS - 1) * SLOTS
        one = links[0]
        links[0] = replace(one, first=one.first + cut, counts=one.counts[cut:], suspect=one.suspect[cut:])
        result = train_network(align_counts(links, topology), replace(SMALL, held_out_days=HELD_OUT))
        model = result.models[0]
        assert model is not None
        assert not model.own.any()
        assert model.bands is not None


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """Train four links as best, interrupted after the first and resumed."""
    folder = tmp_path_factory.mktemp("best")
    links, topology = city_series()
    training = train_links(links, folder, how("best"), topology=topology, jobs=1)
    first = next(training)
    training.close()  # as an interruption does
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith(".network-"))
    parts = []
    report = lambda part, _done, _of: parts.append(part)  # noqa: E731
    rest = list(train_links(links, folder, how("best"), topology=topology, jobs=1, resume=True, report=report))
    return folder, links, topology, first, left, parts, {o.link_id: o for o in rest}


@pytest.mark.journey
class TestBest:
    def test_resume_goes_on_with_the_network_that_was_learnt(self, best):
        folder, links, topology, first, left, parts, rest = best
        assert len(left) == 1
        assert parts == []
        assert rest[first.link_id].state == "kept"
        assert [o.state for o in rest.values()].count("trained") == len(links) - 1
        assert not list(folder.glob(".network-*"))
        again = list(train_links(links, folder, how("best"), topology=topology, jobs=1, resume=True))
        assert {o.state for o in again} == {"kept"}

    def test_what_wins_on_the_held_out_slots_is_kept(self, best):
        folder, links, _, _, _, _, outcomes = best
        for link in links[:-1]:
            outcome = outcomes[link.link_id]
            first, second = outcome.artifacts(folder).items()
            assert {first[0], second[0]} == {"NETWORK", "KR_SML"}
            for algorithm, artifact in (first, second):
                model, about = load_model(artifact)
                assert about == (outcome.about if algorithm == first[0] else outcome.others[algorithm])
                figures = about["held_out"]
                assert set(figures) == {"candidate", "NETWORK", "base", "KR_SML", "KR", "profile", "last_week", *ALL}
                errors = {name: figures[name]["rmse"]["value"] for name in ("NETWORK", "base", "KR_SML")}
                best_one = about["chosen"].partition(":")[0]
                assert errors[best_one] == min(errors.values())
                assert first[0] == {"base": "NETWORK"}.get(best_one, best_one)
                own = errors["KR_SML"] if algorithm == "KR_SML" else min(errors["NETWORK"], errors["base"])
                assert model.algorithm == algorithm
                assert figures["candidate"]["rmse"]["value"] == own
                if algorithm == "NETWORK" and errors["base"] < errors["NETWORK"]:
                    assert not model.shares.any()
                assert len({measures["rmse"]["n_used"] for measures in figures.values()}) == 1
                assert figures["candidate"]["coverage"]["value"] is not None
                state = Aggregation.from_json(about["aggregation"])
                assert state.regrets.cumulated.shape == (4, 5)
                assert np.abs(state.regrets.cumulated).min() > 0.0  # each has a regret at each horizon

    def test_the_aggregates_are_those_of_their_experts(self, best):
        _, links, *_, outcomes = best
        for link in links[:-1]:
            outcome = outcomes[link.link_id]
            if outcome.state == "kept":  # of which only the artifacts are known
                assert outcome.starts == {}
                continue
            assert set(outcome.starts) == set(ALL)
            assert outcome.about["aggregation"] == outcome.starts["ENSEMBLE"]
            left_out = Aggregation.from_json(outcome.starts["ENSEMBLE with KR_SML"]).regrets
            assert not left_out.largest[:, EXPERT_NAMES.index("NETWORK")].any()
            assert left_out.largest[:, EXPERT_NAMES.index("KR_SML")].all()

    def test_a_young_link_gets_the_networks(self, best):
        folder, links, *_ = best
        model, about = load_model(folder / links[-1].link_id)
        assert model.algorithm == "NETWORK"
        figures = {"candidate", "NETWORK", "base", "profile", "last_week", "ENSEMBLE", "ENSEMBLE before"}
        assert set(about["held_out"]) == figures

    def test_without_a_network_best_is_what_a_link_learns_by_itself(self, tmp_path):
        links, _ = city_series(n=1, young=False)
        [failed] = train_links(links, tmp_path, how("NETWORK"), jobs=1)
        assert (failed.state, failed.about) == ("failed", None)
        assert "a network of 1 link cannot be trained" in failed.reason
        [alone] = train_links(links, tmp_path, how("best"), jobs=1)
        assert alone.state == "trained"
        assert (alone.about["plan"]["algorithm"], alone.others) == ("KR_SML", {})
        assert "there is no network model" in alone.about["chosen"]

    def test_resume_trains_what_is_not_whole_or_of_another_kind(self, best, tmp_path):
        folder, links, topology, *_ = best
        again = shutil.copytree(folder, tmp_path / "again")
        link_id = links[0].link_id
        [expert] = again.glob(f"{link_id}+*")
        shutil.rmtree(expert)
        outcomes = train_links(links, again, how("best"), topology=topology, jobs=1, resume=True)
        states = {outcome.link_id: outcome.state for outcome in outcomes}
        assert states.pop(link_id) == "trained"
        assert set(states.values()) == {"kept"}
        assert expert.is_dir()
        one, _ = city_series(n=1, young=False)
        [alone] = train_links(one, tmp_path / "one", how("best"), jobs=1)
        [first] = train_links(one, tmp_path / "one", ALONE, jobs=1, resume=True)
        assert ("aggregation" in alone.about, "aggregation" in first.about) == (True, False)
        assert first.state == "trained"

    def test_another_algorithm_replaces_all_experts(self, best, tmp_path):
        folder, links, *_ = best
        shutil.copytree(folder, tmp_path / "again")
        [outcome] = train_links(links[:1], tmp_path / "again", replace(ALONE, algorithm="KR"), jobs=1)
        assert list(outcome.artifacts(folder)) == ["KR"]
        assert [path.name for path in (tmp_path / "again").glob(f"{links[0].link_id}*")] == [links[0].link_id]

    def test_a_span_that_is_too_short_is_each_links_failure(self, tmp_path):
        links, topology = city_series(days=6, n=2, young=False)
        outcomes = list(train_links(links, tmp_path, how("NETWORK"), topology=topology, jobs=1))
        assert {o.state for o in outcomes} == {"failed"}
        assert {o.reason for o in outcomes} == {"6 days of counts are too few for a network; at least 8 are needed"}

    def test_links_of_another_zone_are_a_network_of_their_own(self, tmp_path):
        links, topology = city_series(n=3, young=False)
        links[2] = replace(links[2], zone=zone_named("Europe/Paris"))
        outcomes = {o.link_id: o for o in train_links(links, tmp_path, how("NETWORK"), topology=topology, jobs=1)}
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
        assert "there is no network model: a network of 1 link cannot be trained" in found["about"]["chosen"]

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
                "context='lags' is refused; only the algorithms NETWORK and best have it",
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
