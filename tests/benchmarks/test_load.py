"""The figures and verdicts of the load benchmark."""

import math
from collections.abc import Sequence

import pytest

from benchmarks.load_clients import ClientResults, PlannedRequest, Response, run_in_process
from benchmarks.load_figures import figures_of, mixed_figures, overload_figures, quantile
from benchmarks.load_report import check_limits
from benchmarks.load_traffic import FORECAST, POST, Rates, Traffic


def response(
    due: float, latency: float, status: int = 200, kind: str = FORECAST, sent: float | None = None
) -> Response:
    return Response(kind, due, due if sent is None else sent, due + latency, status, -1, status == 503)


def phase(
    workers: int = 1, p99: Sequence[float] = (0.004,), cpu: float = 0.5, weights: tuple[float, ...] = (100.0,) * 3
):
    rounds = [results([response(0.0, slow)] * 100, cpu_seconds=cpu) for slow in p99]
    return mixed_figures(workers, rounds, [(60.0 * i, weight) for i, weight in enumerate(weights)])


def results(responses: Sequence[Response], seconds: float = 1.0, cpu_seconds: float = 1.0) -> ClientResults:
    return ClientResults(list(responses), seconds, 0.1, [0.0], 0.0, cpu_seconds)


def found(*phases, overload=None, lost: int = 0):
    as_json = [vars(one) | {"kinds": [vars(kind) for kind in one.kinds]} for one in phases]
    about = {"steady": phases[-1].workers, "cores": 2, "overload": overload, "counts_acknowledged": 9}
    return about | {"phases": as_json, "counts_lost": lost}


def holding(measured) -> list[bool | None]:
    return [verdict.holds for verdict in check_limits(measured)]


class TestFigures:
    def test_an_answer_is_timed_from_when_its_question_was_meant_to_be_sent(self) -> None:
        (_, forecasts, *_) = figures_of([response(1.0, 0.5, sent=1.4)])
        assert forecasts.p50 == pytest.approx(500.0)

    def test_refusals_and_failures_are_counted_and_not_timed(self) -> None:
        (_, forecasts, *_) = figures_of(
            [response(0, 0.001), response(0, 9.0, 503), response(0, 9.0, 500), response(0, 9.0, 0)]
        )
        assert (forecasts.answered, forecasts.refused, forecasts.errors) == (1, 1, 2)
        assert forecasts.p99 == pytest.approx(1.0)

    def test_a_quantile_is_one_of_the_values(self) -> None:
        assert [quantile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
        assert math.isnan(quantile([], 0.5))

    def test_recovery_ends_with_the_last_slow_or_refusing_second(self) -> None:
        calm = [response(10 + i / 10, 0.004) for i in range(150)]
        slow = [response(12.5, 1.0)] * 20
        overload = overload_figures(100.0, 10.0, results([*calm, *slow], 25.0), phase())
        assert overload.recovered_after == 3.0
        refused = [*calm, response(24.5, 0.001, 503)]
        refused.append(response(25.5, 0.004))
        assert overload_figures(100.0, 10.0, results(refused, 25.0), phase()).recovered_after is None


class TestVerdicts:
    def test_all_bars_hold(self) -> None:
        assert holding(found(phase(1), phase(2))) == [True] * 6

    def test_a_slow_round_is_no_slow_service(self) -> None:
        assert holding(found(phase(1, [0.004, 0.1, 0.004]), phase(2)))[0] is True
        assert holding(found(phase(1, [0.1, 0.1, 0.004]), phase(2)))[0] is False

    def test_slow_forecasts_fail(self) -> None:
        assert holding(found(phase(1, p99=[0.0251]), phase(2)))[:2] == [False, True]

    def test_one_worker_must_stay_below_a_core(self) -> None:
        assert holding(found(phase(1, cpu=1.1), phase(2)))[2] is False

    def test_memory_is_checked_only_after_two_minutes(self) -> None:
        assert holding(found(phase(1), phase(2, weights=(100.0, 110.0))))[3] is None
        assert holding(found(phase(1), phase(2, weights=(90.0, 100.0, 105.1))))[3] is False

    def test_a_lost_count_fails(self) -> None:
        assert holding(found(phase(1), phase(2), lost=1))[-1] is False


class TestTraffic:
    traffic = Traffic(["A", "B"], [b"0", b"1", b"2", b"3"], 2, Rates(50.0, 5.0, 1.0, slot_seconds=5.0))

    def test_every_batch_comes_once_and_each_slot_after_the_one_before(self) -> None:
        posts = [planned for planned in self.traffic.mixed(10.0, 1) if planned.kind == POST]
        assert sorted(planned.batch for planned in posts) == [0, 1, 2, 3]
        assert all(5.0 * (planned.batch // 2) <= planned.due < 5.0 * (planned.batch // 2) + 2.5 for planned in posts)

    def test_reads_are_as_frequent_as_the_rates_and_in_order(self) -> None:
        planned_requests = self.traffic.mixed(100.0, 1)
        assert [planned.due for planned in planned_requests] == sorted(planned.due for planned in planned_requests)
        assert 4500 < sum(planned.kind == FORECAST for planned in planned_requests) < 5500

    def test_a_question_that_posts_counts_gets_its_body(self) -> None:
        with_body = self.traffic.with_body(PlannedRequest(0.0, POST, b"", 2))
        assert with_body.request.startswith(b"POST /v1/counts ")
        assert with_body.request.endswith(b"\r\n\r\n2")


@pytest.mark.journey
def test_clients_run_in_a_process_of_their_own() -> None:
    assert run_in_process(divmod, 7, 2) == (3, 1)
