import json

import numpy as np
import pytest

from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import load_model
from model.artifacts.network_models import NETWORKS, load_network, save_network, save_network_model
from model.network_model.network import context_source
from model.network_model.training import train_network
from tests.support.networks import QUICK, synthetic_network

SERIES = synthetic_network(days=16)


@pytest.fixture(scope="module")
def result():
    return train_network(SERIES, QUICK)


@pytest.fixture
def saved(result, tmp_path):
    network = save_network(tmp_path, result.network, {"made": "up"})
    fingerprint = save_network_model(tmp_path / "link", result.models[2], network, {"link_id": "0-2"})
    return tmp_path, network, fingerprint


def forecast(model):
    rows = np.arange(15 * 24, 15 * 24 + 6)
    source = context_source(model.network, SERIES.counts, SERIES.calendar, np.arange(9), None)
    found = [source.rows(rows, horizon) for horizon in (1, 2, 3, 4)]
    profile_counts = np.stack([one.profile[model.link] for one in found], axis=1)
    return model.forecast([one.columns[model.link] for one in found], profile_counts)


def test_a_model_forecasts_the_same_after_it_was_stored(result, saved):
    folder, _, fingerprint = saved
    loaded, about = load_model(folder / "link", fingerprint=fingerprint)
    assert about == {"link_id": "0-2"}
    for before, after in zip(forecast(result.models[2]), forecast(loaded), strict=True):
        assert np.array_equal(before, after)
    with_memories = [
        type(model)(model.network, model.link, model.own, model.memory, np.array([0.5, 0.5]), model.bands)
        for model in (result.models[2], loaded)
    ]
    assert np.array_equal(forecast(with_memories[0]).expected, forecast(with_memories[1]).expected)


def test_models_of_a_network_share_it(result, saved):
    folder, network, _ = saved
    save_network_model(folder / "other", result.models[5], network, {})
    one, other = load_model(folder / "link")[0], load_model(folder / "other")[0]
    assert one.network is other.network


def test_in_the_store_it_lies_one_level_above(result, saved):
    folder, network, _ = saved
    (folder / "a").mkdir()
    save_network_model(folder / "a" / "1", result.models[0], network, {})
    assert load_model(folder / "a" / "1")[0].link == 0


def test_the_very_same_network_is_stored_once(result, saved):
    folder, network, _ = saved
    written = json.loads((folder / NETWORKS / network / "manifest.json").read_text())["written_at"]
    assert written
    assert [path.name for path in (folder / NETWORKS).iterdir()] == [network]


def test_a_missing_network_is_reported(saved):
    folder, network, _ = saved
    (folder / NETWORKS / network).rename(folder / "elsewhere")
    with pytest.raises(DamagedArtifact, match=r"its network .* is missing"):
        load_model(folder / "link")


def test_a_damaged_network_is_reported(saved):
    folder, network, _ = saved
    file = folder / NETWORKS / network / "base_weights.npy"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedArtifact, match="base_weights"):
        load_model(folder / "link")


def test_a_link_model_is_no_network_and_the_other_way_round(saved):
    folder, network, _ = saved
    with pytest.raises(DamagedArtifact, match="other than a network"):
        load_network(folder / "link")
    with pytest.raises(DamagedArtifact, match="other than a link's model"):
        load_model(folder / NETWORKS / network)


def test_parts_that_do_not_fit_are_refused(result, saved):
    folder, network, _ = saved
    model = result.models[2]
    wrong = type(model)(model.network, 99, model.own, model.memory, model.shares, model.bands)
    with pytest.raises(IndexError):
        save_network_model(folder / "wrong", wrong, network, {})
    short = type(model)(model.network, 2, model.own[:2], model.memory, model.shares, model.bands)
    save_network_model(folder / "short", short, network, {})
    with pytest.raises(DamagedArtifact, match="own has shape"):
        load_model(folder / "short")


def test_a_model_without_bands_is_not_saved(result, saved):
    folder, network, _ = saved
    model = result.models[2]
    with pytest.raises(ValueError, match="without bands"):
        save_network_model(
            folder / "x", type(model)(model.network, 2, model.own, model.memory, model.shares), network, {}
        )
