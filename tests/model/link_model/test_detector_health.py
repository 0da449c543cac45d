import numpy as np
import pytest

from model.link_model.detector_health import examine, slot_verdicts
from model.link_model.series import CountSeries

SLOTS = 96


def day_wave(days: int = 14) -> np.ndarray:
    slots = np.arange(days * SLOTS) % SLOTS
    noise = np.random.default_rng(0).poisson(5, days * SLOTS)
    return np.round(80 * np.exp(-(((slots - 50) / 18) ** 2))) + noise


def series_of(counts: np.ndarray) -> CountSeries:
    slots = np.arange(len(counts))
    return CountSeries(counts.astype(float), slots // SLOTS % 7, slots % SLOTS, SLOTS)


def names(counts: np.ndarray, **parameters: float) -> list[str]:
    return [verdict.name for verdict in examine(series_of(counts), **parameters).verdicts]


def test_a_sound_detector_has_no_verdict():
    health = examine(series_of(day_wave()))
    assert health.verdicts == []
    assert not health.suspect.any()
    assert health.enough


def test_zeros_at_noon_are_a_dead_detector_with_the_vehicles_it_missed():
    counts = day_wave()
    counts[5 * SLOTS + 40 : 5 * SLOTS + 60] = 0
    (verdict,) = examine(series_of(counts)).verdicts
    assert (verdict.name, verdict.first, verdict.last) == ("dead", 5 * SLOTS + 40, 5 * SLOTS + 59)
    assert "20 slots of zero where about" in verdict.reason


def test_zeros_at_night_on_a_quiet_road_are_just_night():
    counts = day_wave()
    counts[np.arange(len(counts)) % SLOTS < 16] = 0
    assert names(counts) == []


def test_a_detector_dead_for_days_does_not_hide_in_its_own_profile():
    counts = day_wave()
    counts[4 * SLOTS : 11 * SLOTS] = 0
    health = examine(series_of(counts))
    assert [v.name for v in health.verdicts] == ["dead"]
    assert health.suspect.sum() == 7 * SLOTS


def test_a_detector_that_never_counted_is_dead_and_has_too_few():
    health = examine(series_of(np.zeros(14 * SLOTS)))
    assert {v.name for v in health.verdicts} == {"dead", "too_few"}
    assert "nothing else was counted for days" in health.verdicts[0].reason
    assert health.suspect.all()
    assert not health.enough


def test_the_same_count_again_and_again_is_stuck():
    counts = day_wave()
    counts[300:320] = 57
    (verdict,) = examine(series_of(counts)).verdicts
    assert (verdict.name, verdict.first, verdict.last) == ("stuck", 300, 319)
    assert verdict.reason == "57 stands for 20 slots in a row"
    assert verdict.slots == 20


@pytest.mark.parametrize(("value", "slots"), [(3.0, 20), (57.0, 7)])
def test_small_counts_and_short_runs_may_repeat(value, slots):
    counts = day_wave()
    counts[300 : 300 + slots] = value
    counts[299] = counts[300 + slots] = 44.0
    assert names(counts) == []


def test_counts_above_the_capacity_are_ordinary_up_to_half_as_much_again():
    counts = day_wave()
    assert counts.max() > 80
    health = examine(series_of(counts), capacity=counts.max() / 1.5)
    assert health.verdicts == []
    assert not health.suspect.any()


def test_counts_above_one_and_a_half_times_the_capacity_are_impossible():
    counts = day_wave()
    counts[700] = 151
    assert names(counts) == []
    (verdict,) = examine(series_of(counts), capacity=100).verdicts
    assert (verdict.name, verdict.first, verdict.last) == ("impossible", 700, 700)
    assert verdict.reason == "151 is above 150, 1.5 times the capacity of 100"


@pytest.mark.parametrize("capacity", [None, 5000.0])
def test_counts_far_outside_the_history_are_impossible(capacity):
    counts = day_wave()
    counts[700:712] = np.arange(2000, 2012)  # three hours: less than a hundredth of a fortnight
    (verdict,) = examine(series_of(counts), capacity).verdicts
    assert (verdict.name, verdict.first, verdict.last) == ("impossible", 700, 711)
    assert "far outside the link's other counts" in verdict.reason


def test_a_few_vehicles_on_an_empty_road_are_chance():
    counts = np.zeros(14 * SLOTS)
    counts[::SLOTS] = 1
    counts[700] = 19
    assert "impossible" not in names(counts)


def test_verdicts_do_not_depend_on_how_far_back_the_series_goes():
    counts = np.concatenate([day_wave(), 3 * day_wave(), day_wave()])
    counts[10 * SLOTS + 40 : 10 * SLOTS + 60] = 0
    counts[20 * SLOTS + 40 : 20 * SLOTS + 60] = 57
    counts[30 * SLOTS + 40] = 400
    long = series_of(counts)
    found = {verdict[2:] for verdict in examine(long).verdicts}
    assert len(found) == 3
    for days in (14, 28):
        skipped = len(counts) - days * SLOTS
        part = examine(long.between(skipped, len(counts))).verdicts
        assert {(v.first + skipped, v.last + skipped) for v in part} == {span for span in found if span[0] >= skipped}
    older = examine(long.head(28 * SLOTS)).verdicts  # ends where a fortnight ends
    assert {verdict[2:] for verdict in older} == {span for span in found if span[1] < 28 * SLOTS}


def test_every_slot_has_the_name_of_its_verdict():
    counts = day_wave(6)
    counts[300:320] = 57
    verdicts = examine(series_of(counts)).verdicts
    assert [verdict.name for verdict in verdicts] == ["too_few", "stuck"]
    assert slot_verdicts(verdicts, len(counts)) == [None] * 300 + ["stuck"] * 20 + [None] * 256


def test_negative_counts_are_impossible():
    counts = day_wave()
    counts[10] = -1
    assert names(counts) == ["impossible"]


def test_too_few_counts_are_reported_with_their_number():
    (verdict,) = examine(series_of(day_wave(6))).verdicts
    assert verdict.name == "too_few"
    assert verdict.reason == "576 counts can be learnt from; at least 672 are needed"


def test_gaps_are_not_suspect():
    counts = day_wave()
    counts[100:200] = np.nan
    health = examine(series_of(counts))
    assert health.verdicts == []
    assert not health.suspect.any()
    assert names(np.full(14 * SLOTS, np.nan)) == ["too_few"]


def test_suspect_counts_become_gaps_for_learning_alone():
    counts = day_wave()
    counts[300:320] = 57
    series = series_of(counts)
    sound = series.without(examine(series).suspect)
    assert np.isnan(sound.counts[300:320]).all()
    assert (series.counts[300:320] == 57).all()
    assert np.isnan(sound.counts).sum() == 20
