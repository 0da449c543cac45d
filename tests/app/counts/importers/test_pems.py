import gzip
import io
import tracemalloc
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.slots import SlotGrid, zone_named
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from app.counts.tables import Quality
from tests.support.count_files import SlotCount, pems_row, pems_times, read_all, read_bytes, refusals

GRID = SlotGrid()
LOS_ANGELES = zone_named("America/Los_Angeles")
NOON = datetime(2019, 1, 15, 12)
SLOT = GRID.number(datetime(2019, 1, 15, 20, tzinfo=UTC))
SPRING, AUTUMN = date(2019, 3, 10), date(2019, 11, 3)


def quarter(*flows: object, start: datetime = NOON, **about: object) -> list[str]:
    times = pems_times(start, len(flows))
    return [pems_row(time, flow, **about) for time, flow in zip(times, flows, strict=True)]


def clock_times(day: date, n: int) -> list[datetime]:
    """Return the local times of a day, every five minutes."""
    first = datetime(day.year, day.month, day.day, tzinfo=LOS_ANGELES).astimezone(UTC)
    return [(first + timedelta(minutes=5 * i)).astimezone(LOS_ANGELES).replace(tzinfo=None) for i in range(n)]


class TestSlots:
    def test_three_rows_make_a_slot_named_by_the_first_ones_time(self):
        counts, reader = read_all(*quarter(1, 20, 300))
        assert counts == [SlotCount("1108148", SLOT, 321, Quality.OBSERVED)]
        report = reader.report
        assert (report.layout, report.rows, report.values) == ("pems-5min", 3, 1)
        link = reader.links["1108148"]
        assert (link.name, link.zone) == ("Freeway 101 N, station 1108148", LOS_ANGELES)

    def test_the_caller_may_name_another_zone(self):
        counts, _ = read_all(*quarter(1, 2, 3), zone="UTC")
        assert GRID.start(counts[0].slot) == NOON.replace(tzinfo=UTC)

    @pytest.mark.parametrize(
        ("minutes", "sums"), [(5, [1, 2, 3, 4, 5, 6]), (10, [3, 7, 11]), (15, [6, 15]), (30, [21])]
    )
    def test_any_multiple_of_five_minutes_is_a_slot(self, minutes, sums):
        counts, reader = read_all(*quarter(1, 2, 3, 4, 5, 6), grid=SlotGrid(minutes))
        assert [count.count for count in counts] == sums
        assert reader.report.values == len(sums)

    def test_slots_that_are_no_multiple_of_five_minutes_are_refused(self):
        with pytest.raises(CountFileError, match="slots of 5 minutes, which do not add up to the 6 minutes"):
            read_all(*quarter(1, 2, 3), grid=SlotGrid(6))

    @pytest.mark.parametrize("left_out", [0, 1, 2])
    def test_a_slot_that_lacks_a_row_is_a_gap_and_no_smaller_sum(self, left_out):
        rows = quarter(1, 2, 3, 4, 5, 6)
        counts, reader = read_all(*rows[:left_out], *rows[left_out + 1 :])
        assert [(count.slot, count.count) for count in counts] == [(SLOT + 1, 15)]
        assert (reader.report.values, reader.report.gaps) == (2, 1)

    def test_a_blank_flow_makes_its_slot_a_gap(self):
        counts, reader = read_all(*quarter(1, "", 3, 0, 0, 0))
        assert [(count.slot, count.count) for count in counts] == [(SLOT + 1, 0)]
        assert (reader.report.values, reader.report.gaps, reader.report.refused) == (2, 1, 0)

    def test_a_file_cut_off_within_a_row_has_a_gap_at_its_end(self):
        data = "\n".join(quarter(1, 2, 3, 4, 5, 6)).encode()
        counts, reader = read_bytes(data[:-20])
        assert [count.count for count in counts] == [6]
        assert (reader.report.gaps, reader.report.refused) == (1, 1)


class TestQuality:
    @pytest.mark.parametrize("observed", [99, 75, 0, "0.0", "99.9", ""])
    def test_a_slot_with_a_row_observed_in_part_is_imputed(self, observed):
        rows = [*quarter(1, 2, 3), *quarter(4, 5, 6, start=NOON + timedelta(minutes=15))]
        rows[1] = pems_row(NOON + timedelta(minutes=5), 2, observed=observed)
        counts, reader = read_all(*rows)
        assert [count.quality for count in counts] == ["imputed", "observed"]
        assert (reader.report.imputed, reader.report.suspect) == (1, 0)

    @pytest.mark.parametrize("observed", [-1, 101, "all", "1e2"])
    def test_a_share_that_is_none_is_refused_by_name(self, observed):
        _, reader = read_all(*quarter(1, 2), pems_row(NOON + timedelta(minutes=10), 3, observed=observed))
        assert refusals(reader) == [(3, "% Observed", str(observed))]
        assert reader.report.gaps == 1


class TestRefusals:
    @pytest.mark.parametrize("flow", ["-1", "-999", "x", "23.5", "1e3", "NaN", "³", "7456541", "9" * 30, ".0", "-0"])
    def test_a_flow_that_is_no_count_is_refused_and_its_slot_is_a_gap(self, flow):
        counts, reader = read_all(*quarter(1, flow, 3), *quarter(4, 5, 6, start=NOON + timedelta(minutes=15)))
        assert [count.count for count in counts] == [15]
        assert refusals(reader) == [(2, "Total Flow", flow)]
        assert (reader.report.values, reader.report.gaps) == (3, 1)

    def test_a_decimal_flow_is_taken_when_it_is_whole(self):
        counts, _ = read_all(*quarter("23.0", "1.", "0.00"))
        assert counts[0].count == 24

    @pytest.mark.parametrize(
        "time",
        [
            "2019-01-15 12:10:00",
            "15/01/2019 12:10:00",
            "02/30/2019 12:10:00",
            "01/15/2019 24:00:00",
            "01/15/2019",
            "01/15/2019 12:07:00",
            "01/15/2019 12:10:01",
            "01/15/1969 12:10:00",
            "01/15/2100 12:10:00",
        ],
    )
    def test_a_time_that_starts_no_row_is_refused_by_name(self, time):
        counts, reader = read_all(*quarter(1, 2, 3), pems_row(time, 3))
        assert len(counts) == 1
        assert refusals(reader) == [(4, "Timestamp", time)]

    @pytest.mark.parametrize("station", ["", "11 08", "a" * 65])
    def test_a_station_that_makes_no_link_id_is_refused(self, station):
        _, reader = read_all(*quarter(1, 2, 3), pems_row(NOON, 3, station=station))
        assert [(line, field) for line, field, _ in refusals(reader)] == [(4, "Station")]

    @pytest.mark.parametrize("fields", [11, 13, 16])
    def test_a_row_of_odd_width_is_refused(self, fields):
        row = ",".join(pems_row(NOON, 3).split(",")[:fields])
        _, reader = read_all(*quarter(1, 2, 3), row)
        assert reader.report.refusals[0].reason == "must have 12 fields, and 5 more for each lane"

    def test_a_second_row_for_five_minutes_replaces_the_first_and_is_not_added(self):
        rows = quarter(1, 2, 3)
        counts, reader = read_all(rows[0], rows[1], pems_row(NOON + timedelta(minutes=5), 4), rows[2])
        assert counts[0].count == 8
        assert "; 1 rows are replaced by a later row for the same time" in reader.report.notes[0]

    def test_an_unclosed_quote_is_refused(self):
        _, reader = read_all(*quarter(1, 2, 3), '"' + pems_row(NOON, 3))
        assert reader.report.reasons == {"must be comma-separated, with each quote closed": 1}


class TestOrder:
    def test_files_by_time_and_by_link_read_alike(self):
        times = pems_times(NOON, 12)
        by_time = [pems_row(time, i + k, station=k) for i, time in enumerate(times) for k in (1, 2, 3)]
        by_link = [pems_row(time, i + k, station=k) for k in (1, 2, 3) for i, time in enumerate(times)]
        assert set(read_all(*by_time)[0]) == set(read_all(*by_link)[0])
        assert len(read_all(*by_time)[0]) == 12

    def test_rows_may_be_in_any_order(self):
        rows = quarter(1, 2, 3, 4, 5, 6)
        counts, _ = read_all(*rows[:2], *rows[3:], rows[2])
        assert [(count.slot, count.count) for count in counts] == [(SLOT, 6), (SLOT + 1, 15)]

    @pytest.mark.journey
    @given(st.data())
    def test_in_any_order_a_count_is_the_sum_of_its_three_rows(self, data):
        flows = data.draw(st.lists(st.integers(-1, 50), min_size=1, max_size=24))
        rows = list(enumerate(quarter(*("" if flow < 0 else flow for flow in flows))))
        kept = data.draw(st.lists(st.sampled_from(rows), max_size=30))
        counts, reader = read_all(quarter(0, start=NOON - timedelta(days=1))[0], *(row for _, row in kept))
        assert reader.report.rows == len(kept) + 1
        for count in counts:
            whole = flows[3 * (count.slot - SLOT) : 3 * (count.slot - SLOT) + 3]
            assert len(whole) == 3
            assert min(whole) >= 0
            assert count.count == sum(whole)


class TestChangingClocks:
    def test_a_spring_day_has_92_slots(self):
        counts, reader = read_all(*(pems_row(time, 1) for time in clock_times(SPRING, 276)))
        assert [count.slot for count in counts] == list(GRID.local_day(SPRING, LOS_ANGELES))
        assert len(counts) == 92
        assert reader.report.gaps == 0

    def test_rows_in_the_skipped_hour_are_refused_by_name(self):
        counts, reader = read_all(*quarter(*[1] * 288, start=datetime(2019, 3, 10)))
        assert len(counts) == 92
        assert reader.report.reasons == {
            "must be a local time that exists in America/Los_Angeles: the clocks skip it": 12
        }

    @pytest.mark.parametrize("by_link", [False, True])
    def test_an_autumn_day_whose_hour_comes_twice_has_100_slots(self, by_link):
        cells = [(i, time, k) for i, time in enumerate(clock_times(AUTUMN, 300)) for k in (1, 2)]
        cells = sorted(cells, key=lambda cell: cell[2]) if by_link else cells
        counts, reader = read_all(*(pems_row(time, i, station=k) for i, time, k in cells))
        real = GRID.local_day(AUTUMN, LOS_ANGELES)
        assert len(real) == 100
        for link_id in ("1", "2"):
            mine = [(count.slot, count.count) for count in counts if count.link_id == link_id]
            assert mine == [(slot, 9 * i + 3) for i, slot in enumerate(real)]
        assert reader.report.refused == 0

    def test_an_autumn_day_whose_hour_comes_once_has_a_gap_for_the_second(self):
        counts, _ = read_all(*quarter(*[1] * 288, start=datetime(2019, 11, 3)))
        real = list(GRID.local_day(AUTUMN, LOS_ANGELES))
        assert [count.slot for count in counts] == real[:8] + real[12:]

    def test_the_second_pass_is_found_even_when_rows_are_missing(self):
        times = clock_times(AUTUMN, 300)
        kept = [*times[:21], *times[24:26], *times[34:]]  # from 1:45 on once, and from 1:10 to 1:45 again
        counts, reader = read_all(*(pems_row(time, 1) for time in kept))
        real = list(GRID.local_day(AUTUMN, LOS_ANGELES))
        assert [count.slot for count in counts] == real[:7] + real[12:]
        assert reader.report.refused == 0

    def test_a_small_step_back_in_the_repeated_hour_is_a_row_out_of_order(self):
        times = clock_times(AUTUMN, 300)
        counts, reader = read_all(*(pems_row(time, 1) for time in [*times[:18], times[14], *times[18:]]))
        assert [count.count for count in counts] == [3] * 100
        assert "1 rows are replaced" in reader.report.notes[0]


class TestFiles:
    def test_a_byte_order_mark_quotes_carriage_returns_and_gzip_do_no_harm(self):
        rows = [",".join(f'"{field}"' for field in row.split(",")) for row in quarter(1, 2, 3)]
        counts, reader = read_bytes(gzip.compress(("\ufeff" + "\r\n".join(rows)).encode()))
        assert [count.count for count in counts] == [6]
        assert reader.report.refused == 0

    @pytest.mark.parametrize("first_line", ["", "a,b", "01/15/2019 12:00:00,1", "x," * 20])
    def test_another_first_line_is_not_recognised(self, first_line):
        with pytest.raises(CountFileError):
            read_all(first_line or "x", *quarter(1, 2, 3))

    @pytest.mark.journey
    def test_memory_does_not_grow_with_the_file(self):
        peaks = []
        read_all(*quarter(1, 2, 3))  # what is loaded once
        for days in (4, 16):
            rows = "\n".join(pems_row(time, 1) for time in pems_times(NOON, 288 * days)).encode()
            stream = io.BytesIO(rows)
            tracemalloc.start()
            with CountReader(stream) as reader:
                assert sum(1 for _ in reader) == 288 * days
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 3_000_000  # times already read are kept, up to ten thousand of them

    @pytest.mark.journey
    @given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=20))
    def test_whatever_the_rows_hold_every_value_is_accounted_for(self, rows):
        counts, _ = read_bytes("\n".join(quarter(1, 2, 3)).encode() + b"\n" + b"\n".join(rows))
        assert [count.count for count in counts] == [6]
