import json
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import sample_city
from app.training.cluster import code_facts, difference
from app.training.cluster_task import (
    MAX_NETWORKS,
    ClusterTask,
    NetworkFiles,
    TrainedLink,
    store_artifact,
    train_in_workspace,
)
from app.training.link_training import LinkTraining
from app.training.network_stage import ActiveModel
from app.training.train_links import train_link
from model.artifacts.artifact import read_artifact
from model.artifacts.folder import MANIFEST
from model.artifacts.link_models import load_model
from model.artifacts.network_models import NETWORKS
from model.link_model.training_plan import TrainingPlan

PLAN = TrainingPlan(algorithm="KR", lags=6, n_neighbors=4, held_out_days=2)


@pytest.fixture(scope="module")
def series() -> LinkSeries:
    city = sample_city(links=1, days=8)
    [(link_id, counts)] = city.counts.items()
    return LinkSeries(link_id, city.grid, zone_named(city.zone), city.first_slot, counts, np.zeros(len(counts), bool))


@pytest.fixture(scope="module")
def returned(series: LinkSeries, tmp_path_factory: pytest.TempPathFactory) -> TrainedLink:
    return train_in_workspace(task_of(series), None, tmp_path_factory.mktemp("there") / "room")


def task_of(series: LinkSeries, active: ActiveModel | None = None, plan: TrainingPlan = PLAN) -> ClusterTask:
    return ClusterTask.of(LinkTraining(series, plan, active={"KR": active} if active else {}))


def test_what_comes_back_is_what_would_have_been_trained_here(series, returned, tmp_path):
    here = train_link(LinkTraining(series, PLAN), tmp_path)
    active = ActiveModel(tmp_path / series.link_id, read_artifact(tmp_path / series.link_id).fingerprint)
    there = train_in_workspace(task_of(series, active), None, tmp_path / "room")
    assert list((tmp_path / "room").iterdir()) == []  # nothing is left behind
    assert "active" in there.outcome.about["held_out"]
    assert returned.outcome.about == here.about
    (tmp_path / "came").mkdir()
    assert store_artifact(returned, tmp_path / "came") == returned.outcome
    _, about = load_model(tmp_path / "came" / series.link_id, fingerprint=returned.artifacts["KR"][1])
    assert about == json.loads(json.dumps(here.about))


def test_an_artifact_that_was_changed_on_the_way_is_its_links_failure(returned, tmp_path):
    files, fingerprint = returned.artifacts["KR"]
    content = bytearray(files["memory.npy"])
    content[-1] ^= 1
    changed = {
        "memory.npy": bytes(content),
        MANIFEST: files[MANIFEST].replace(b"KR", b"KS", 1),
        "../elsewhere.npy": b"",
        "/elsewhere.npy": b"",
    }
    for name, bad in changed.items():
        outcome = store_artifact(returned._replace(artifacts={"KR": ({**files, name: bad}, fingerprint)}), tmp_path)
        assert (outcome.state, outcome.about) == ("failed", None)
        assert outcome.reason.startswith("its artifact came back damaged: ")
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path.parent / "elsewhere.npy").exists()


def test_a_link_that_cannot_be_trained_brings_the_reason_and_no_files(series, tmp_path):
    short = replace(series, counts=series.counts[:50], suspect=series.suspect[:50])
    came = train_in_workspace(task_of(short), None, tmp_path)
    assert (came.outcome.state, came.artifacts) == ("failed", {})
    assert store_artifact(came, tmp_path) == came.outcome
    assert came.outcome.reason


def test_a_cancelled_training_ends_and_leaves_no_file(series, tmp_path):
    evaluations = []

    def cancel() -> None:
        evaluations.append(1)
        raise CancelledError

    plan = replace(PLAN, algorithm="KR_SML")
    came = train_in_workspace(task_of(series, plan=plan), None, tmp_path, cancel)
    assert (len(evaluations), came.outcome.state, came.artifacts) == (1, "failed", {})
    assert list(tmp_path.iterdir()) == []


def test_a_dask_worker_keeps_few_networks_and_writes_each_once(series, tmp_path):
    kept = tmp_path / NETWORKS

    def send(number: int) -> Path:
        network = NetworkFiles(f"{number:064x}", {MANIFEST: b"{}"})
        train_in_workspace(task_of(series), network, tmp_path)
        return kept / network.fingerprint

    first = send(1)
    before = (first / MANIFEST).stat().st_mtime_ns
    assert send(1) == first
    assert (first / MANIFEST).stat().st_mtime_ns == before
    for number in range(2, MAX_NETWORKS + 2):
        newest = send(number)
    assert len(list(kept.iterdir())) == MAX_NETWORKS
    assert newest.is_dir()
    assert not first.exists()


def test_other_code_is_named_with_both_values():
    assert difference(code_facts()) == ""
    assert (
        difference(code_facts() | {"flowcast": "0.0.9"})
        == f"flowcast is 0.0.9 there and {code_facts()['flowcast']} here"
    )
    assert "numpy is missing there" in difference(
        {name: fact for name, fact in code_facts().items() if name != "numpy"}
    )
