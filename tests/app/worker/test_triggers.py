"""Runs that no person requests: by the schedules, and where accuracy fell."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from app.accuracy.measure import link_accuracy
from app.core.database import open_database, reading, writing
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.links.queries import link_or_404
from app.links.tables import Link
from app.registry.tables import ModelVersion
from app.settings import Settings
from app.training.tables import RetrainLink, RetrainRun
from app.worker.triggers import Triggers
from tests.support.stored import put_rows

NIGHTLY = "0 3 * * *"
SLOT = 900
NOW = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)


class SetClock:
    def __init__(self, now):
        self.moment = now

    def now(self):
        return self.moment


@pytest.fixture
def engine(settings):
    opened = open_database(settings.database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def clock():
    return SetClock(NOW)


def add_link(engine, link_id="A"):
    with writing(engine) as session:
        row = Link(link_id=link_id, name=link_id, zone="UTC", slot_minutes=15, created_at=NOW, updated_at=NOW)
        session.add(row)
        session.flush()
        return row.link_key


def runs(engine):
    with reading(engine) as session:
        return list(session.scalars(select(RetrainRun).order_by(RetrainRun.id)))


def end_runs(engine, at):
    with writing(engine) as session:
        for row in session.scalars(select(RetrainLink)):
            row.state, row.finished_at = "done", at


class TestSchedule:
    @pytest.fixture
    def watch(self, engine, settings, clock):
        settings = settings.model_copy(update={"retrain_schedule": NIGHTLY})

        def look(clock=clock, since=None):
            return Triggers(engine, settings, clock, since or NOW).queue_due_runs()

        return look

    def test_a_moment_that_passes_makes_one_run_over_all_links(self, engine, clock, watch):
        keys = {add_link(engine, link_id) for link_id in ("A", "B")}
        assert watch() == []  # the schedule is new, and not behind with this morning
        clock.moment = NOW + timedelta(hours=14, minutes=30)
        [run_id] = watch()
        assert watch() == []
        [run] = runs(engine)
        assert (run.id, run.state, run.algorithm, run.activate) == (run_id, "queued", "best", "if_better")
        assert (run.requested_by, run.occasion) == ("schedule", "schedule 2026-11-17T03:00:00Z")
        with reading(engine) as session:
            assert set(session.scalars(select(RetrainLink.link_key))) == keys

    def test_times_missed_while_nothing_ran_are_made_up_once(self, engine, clock, watch):
        add_link(engine)
        clock.moment = NOW + DAY
        assert len(watch()) == 1
        end_runs(engine, clock.moment)
        clock.moment = NOW + 5 * DAY
        assert len(watch(since=clock.moment)) == 1  # a process that has just started
        assert watch(since=clock.moment) == []
        assert [run.occasion[9:19] for run in runs(engine)] == ["2026-11-17", "2026-11-21"]

    def test_of_several_processes_one_makes_the_run(self, engine, clock, watch, monkeypatch):
        add_link(engine)
        clock.moment = NOW + DAY
        watch()
        end_runs(engine, clock.moment)
        monkeypatch.setattr("app.worker.triggers.occasion_has_run", lambda *_: False)  # it looked a moment too early
        assert watch() == []
        assert len(runs(engine)) == 1

    def test_links_that_are_all_in_a_run_wait_for_it(self, engine, clock, watch):
        add_link(engine)
        clock.moment = NOW + DAY
        watch()
        clock.moment = NOW + 2 * DAY
        assert watch() == []
        end_runs(engine, clock.moment)
        assert len(watch()) == 1

    def test_without_links_there_is_nothing_to_do(self, engine, clock, watch):
        clock.moment = NOW + DAY
        assert watch() == []

    def test_off_by_default(self, engine, settings, clock):
        add_link(engine)
        triggers = Triggers(engine, settings, clock)
        for day in range(3):
            clock.moment = NOW + day * DAY
            assert triggers.queue_due_runs() == []

    def test_a_process_remembers_since_when_it_watches(self, engine, settings, clock):
        add_link(engine)
        settings = settings.model_copy(update={"retrain_schedule": NIGHTLY})
        triggers = Triggers(engine, settings, clock)
        assert triggers.queue_due_runs() == []
        clock.moment = NOW + DAY
        assert len(triggers.queue_due_runs()) == 1


class TestRefresh:
    @pytest.fixture
    def watch(self, engine, settings, clock):
        settings = settings.model_copy(update={"refresh_schedule": NIGHTLY, "retrain_algorithm": "best"})
        return lambda: Triggers(engine, settings, clock, NOW).queue_due_runs()

    def test_network_models_are_refreshed_and_links_with_counts_alone_taken_in(self, engine, clock, watch):
        put_city(engine, {"network": 0}, algorithm="NETWORK")
        put_city(engine, {"other": 0})
        add_link(engine, "silent")
        new = add_link(engine, "new")
        with writing(engine) as session:
            slot = int(NOW.timestamp()) // SLOT * SLOT
            put_rows(session, Count, [{"link_key": new, "slot_start": slot, "count": 5, "quality": 0}])
        assert watch() == []
        clock.moment = NOW + DAY
        [run_id] = watch()
        assert watch() == []
        [run] = runs(engine)
        assert (run.id, run.algorithm, run.parameters, run.activate) == (run_id, "NETWORK", {"refresh": True}, "always")
        assert (run.requested_by, run.occasion) == ("refresh", "refresh 2026-11-17T03:00:00Z")
        with reading(engine) as session:
            rows = session.execute(select(Link.link_id).join(RetrainLink, RetrainLink.link_key == Link.link_key))
            assert set(rows.scalars()) == {"network", "new"}

    def test_without_a_network_model_there_is_nothing_to_refresh(self, engine, clock, watch):
        put_city(engine, {"A": 0})
        clock.moment = NOW + DAY
        assert watch() == []

    def test_what_the_schedule_trains_can_be_set(self, engine, settings, clock):
        add_link(engine)
        clock.moment = NOW + DAY
        settings = settings.model_copy(update={"retrain_schedule": NIGHTLY, "retrain_algorithm": "best"})
        Triggers(engine, settings, clock, NOW).queue_due_runs()
        assert [run.algorithm for run in runs(engine)] == ["best"]


class TestSettings:
    @pytest.mark.parametrize("schedule", ["0 3 * * 1", "*/30 1-5 * * mon-fri", "15 3 1,15 * *", " 0 3 * * * "])
    def test_cron_syntax(self, schedule):
        assert Settings(retrain_schedule=schedule).retrain_schedule == schedule.strip()

    @pytest.mark.parametrize(
        "schedule", ["daily", "0 3 * *", "61 3 * * *", "0 0 3 * * *", "R 3 * * *", "0 3 30 2 *", "0 3 * * 1,H"]
    )
    def test_what_is_no_schedule_is_refused_by_name(self, schedule):
        with pytest.raises(ValidationError, match=r"retrain_schedule\n.*five fields of cron syntax"):
            Settings(retrain_schedule=schedule)

    def test_the_refresh_has_a_schedule_of_the_same_kind(self):
        with pytest.raises(ValidationError, match=r"refresh_schedule\n.*five fields of cron syntax"):
            Settings(refresh_schedule="nightly")

    def test_an_algorithm_that_is_none_is_refused_by_name(self):
        with pytest.raises(ValidationError, match=r"retrain_algorithm\n.*'NETWORK' or 'best'"):
            Settings(retrain_algorithm="LSTM")

    @pytest.mark.parametrize("ratio", [-1, 0.5, 1, "nan", "inf"])
    def test_a_trigger_that_would_always_or_never_fire(self, ratio):
        with pytest.raises(ValidationError, match="retrain_trigger"):
            Settings(retrain_trigger=ratio)


class TestTrigger:
    @pytest.fixture
    def settings(self, settings):
        return settings.model_copy(update={"retrain_trigger": 1.3})

    @pytest.fixture
    def watch(self, engine, settings, clock):
        return lambda: Triggers(engine, settings, clock, NOW).queue_due_runs()

    def test_a_link_whose_realised_rmse_exceeds_the_held_out_one(self, engine, settings, watch):
        put_city(engine, {"bad": 14, "good": 12})
        with reading(engine) as session:
            assert link_accuracy(session, "bad", 1).rmse == pytest.approx(14)
        [run_id] = watch()
        [run] = runs(engine)
        assert (run.requested_by, run.occasion) == ("trigger", "trigger 2026-11-16T12:00:00Z")
        with reading(engine) as session:
            [row] = session.scalars(select(RetrainLink))
            assert (row.run_id, row.link_key) == (run_id, link_or_404(session, "bad").link_key)

    def test_exactly_at_the_threshold_is_not_beyond_it(self, engine, watch):
        put_city(engine, {"A": 13})
        assert watch() == []

    def test_one_run_an_hour(self, engine, clock, watch):
        put_city(engine, {"A": 20})
        assert len(watch()) == 1
        end_runs(engine, datetime.now(UTC) - 2 * DAY)
        assert watch() == []
        clock.moment = NOW + timedelta(hours=1)
        assert len(watch()) == 1

    @pytest.mark.parametrize(("hours_ago", "made"), [(23, 0), (25, 1)])
    def test_a_link_rests_after_a_run(self, engine, clock, watch, hours_ago, made):
        put_city(engine, {"A": 20})
        watch()
        end_runs(engine, datetime.now(UTC) - timedelta(hours=hours_ago))
        clock.moment = NOW + timedelta(hours=1)
        assert len(watch()) == made

    @pytest.mark.parametrize(("slots", "made"), [(47, 0), (48, 1)])
    def test_half_the_window_must_be_scored(self, engine, watch, slots, made):
        put_city(engine, {"A": 20}, slots=slots)
        assert len(watch()) == made

    def test_a_detector_that_went_silent_is_no_reason(self, engine, watch):
        put_city(engine, {"A": 20}, until=NOW - DAY)
        put_city(engine, {"B": 10})
        assert watch() == []

    def test_forecasts_of_another_version_do_not_count(self, engine, watch):
        put_city(engine, {"A": 20}, version=1, active=2)
        assert watch() == []

    def test_an_ensemble_is_compared_by_the_forecasts_of_all_its_versions(self, engine, watch):
        put_city(engine, {"A": 20, "B": 20, "C": 10}, slots=48, version=1, active=2)
        with writing(engine) as session:
            for link in session.scalars(select(Link)):
                link.choice = "ensemble"
            for model in session.scalars(select(ModelVersion)):
                held_out = model.about["held_out"] | {"ENSEMBLE": {"rmse": {"value": 10.0, "n_used": 96}}}
                if (
                    model.link_key != link_or_404(session, "B").link_key
                ):  # of B only a model was measured, by which it is judged
                    model.about = model.about | {"held_out": held_out}
        assert len(watch()) == 1
        with reading(engine) as session:
            retrained = set(session.scalars(select(RetrainLink.link_key)))
            assert retrained == {link_or_404(session, link_id).link_key for link_id in ("A", "B")}

    def test_of_several_active_models_the_last_one_forecasts(self, engine, watch):
        put_city(engine, {"A": 20}, version=1, active=1)
        with writing(engine) as session:
            key = link_or_404(session, "A").link_key
            later = version_row(key, 2, 30.0, "NETWORK")
            later.activated_at = NOW + DAY
            session.add(later)
        assert watch() == []

    def test_a_model_without_a_held_out_figure_promises_nothing(self, engine, watch):
        put_city(engine, {"A": 20}, held_out=None)
        assert watch() == []

    def test_measured_every_few_minutes_only(self, engine, settings, clock):
        triggers = Triggers(engine, settings, clock, NOW)
        assert triggers.queue_due_runs() == []
        put_city(engine, {"A": 20})
        assert triggers.queue_due_runs() == []

    def test_off_by_default(self, engine, settings, clock):
        put_city(engine, {"A": 20})
        off = settings.model_copy(update={"retrain_trigger": 0.0})
        assert Triggers(engine, off, clock, NOW).queue_due_runs() == []


def put_city(engine, errors, *, slots=96, until=NOW, version=1, active=1, held_out=10.0, algorithm="KR"):
    """Store links whose forecasts have a constant error in every slot up to a time."""
    last = int(until.timestamp()) // SLOT * SLOT
    starts = [last - SLOT * i for i in range(slots)]
    for link_id, error in errors.items():
        key = add_link(engine, link_id)
        with writing(engine) as session:
            session.add(version_row(key, active, held_out, algorithm))
            put_rows(session, Count, [{"link_key": key, "slot_start": at, "count": 50, "quality": 0} for at in starts])
            put_rows(session, Forecast, [forecast(key, at, version, 50.0 + error) for at in starts])


def forecast(key, at, version, expected):
    return {
        "link_key": key,
        "slot_start": at,
        "horizon": 1,
        "model_version": version,
        "expected": expected,
        "level": 0.9,
        "method": 0,
        "filled_lags": 0,
        "issued_at": 0,
    }


def version_row(key, version, held_out, algorithm):
    return ModelVersion(
        link_key=key,
        version=version,
        state="active",
        algorithm=algorithm,
        folder=f"{key}/{version}",
        fingerprint="0" * 64,
        rank=1,
        trained_from=NOW - 9 * DAY,
        trained_to=NOW - DAY,
        about={"held_out": {"candidate": {"rmse": {"value": held_out, "n_used": 96}}}},
        created_at=NOW,
        activated_at=NOW,
    )
