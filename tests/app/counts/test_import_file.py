"""Files of counts into the database: every value accounted for, in one transaction."""

import gzip
import io
import zipfile
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.core.clock import WallClock
from app.core.database import reading, writing
from app.core.slots import SlotGrid, zone_named
from app.counts.import_file import as_link
from app.counts.importers import spool
from app.counts.importers.record import CountFileError, ImportedLink
from app.counts.queries import counts_between
from app.counts.tables import CountCorrection
from app.links.queries import all_links, links_by_id
from app.links.schemas import LinkIn
from app.links.store_links import store_links
from app.links.tables import Link
from tests.support.count_files import SURVEY_HEADER, import_counts, survey_row
from tests.support.databases import on_sqlite

HEADER = "link_id,slot_start,count,quality\n"
MIDNIGHT = datetime(2025, 9, 1, tzinfo=UTC)


def row(link_id="A", slot=0, count="4", quality=""):
    return f"{link_id},{(MIDNIGHT + timedelta(minutes=15 * slot)).isoformat()},{count},{quality}\n"


def add_links(engine, *link_ids, **fields):
    with writing(engine) as session:
        store_links(session, [LinkIn(link_id=link_id, **{"zone": "UTC"} | fields) for link_id in link_ids])


def run(engine, text, **options):
    return import_counts(engine, io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def stored(engine, link_id="A"):
    """Return the stored counts of a link by slot of the first day."""
    with reading(engine) as session:
        key = links_by_id(session, [link_id])[link_id].link_key
        rows = counts_between(session, [key], 0, 2**33)
    return {(int(slot) - int(MIDNIGHT.timestamp())) // 900: int(count) for _, slot, count, _ in rows}


def adds_up(report):
    taken = report.stored + report.replaced + report.unchanged + report.repeated
    return report.values == taken + report.gaps + report.refused


@pytest.fixture
def engine(runtime):
    return runtime.engine


class TestStoring:
    def test_every_value_is_accounted_for(self, engine):
        add_links(engine, "A", "B")
        text = HEADER + row() + row(slot=1, count="") + row(slot=2, count="-1") + row("B", 0, "7", "suspect")
        moved = []
        report = run(engine, text + row("B", 1, "8", "imputed"), moved=moved)
        assert (report.rows, report.values, report.stored, report.gaps, report.refused) == (5, 5, 3, 1, 1)
        assert (report.suspect, report.imputed, report.links) == (1, 1, 2)
        assert (report.refusals[0].line, report.refusals[0].field, report.refusals[0].value) == (4, "count", "-1")
        assert sum(report.reasons.values()) == 1
        assert adds_up(report)
        assert sorted(link.link_id for link in moved) == ["A", "B"]
        assert stored(engine) == {0: 4}
        assert stored(engine, "B") == {0: 7, 1: 8}
        assert (report.first_slot, report.last_slot) == (MIDNIGHT, MIDNIGHT + timedelta(minutes=15))

    def test_the_same_file_twice_changes_nothing(self, engine):
        add_links(engine, "A")
        text = HEADER + row() + row(slot=1)
        run(engine, text)
        report = run(engine, text)
        assert (report.stored, report.replaced, report.unchanged, report.forecasts_issued) == (0, 0, 2, 0)

    def test_a_correction_replaces_and_is_kept_in_history(self, engine):
        add_links(engine, "A")
        run(engine, HEADER + row(count="4"))
        report = run(engine, HEADER + row(count="5"))
        assert (report.replaced, report.forecasts_issued) == (1, 0)
        with reading(engine) as session:
            assert [old.count for old in session.scalars(select(CountCorrection))] == [4]

    def test_of_several_for_one_slot_the_last_one_is_kept(self, engine):
        add_links(engine, "A")
        report = run(engine, HEADER + row(count="9") + row(slot=1) + row(count="5") + row(count="6"))
        assert stored(engine) == {0: 6, 1: 4}
        assert (report.stored, report.repeated) == (2, 2)
        assert adds_up(report)
        with reading(engine) as session:
            assert not session.scalars(select(CountCorrection)).all()

    def test_many_links_come_in_groups_that_change_nothing_of_it(self, engine, monkeypatch):
        monkeypatch.setattr(spool, "MOST_IN_A_GROUP", 10)
        links = [f"L{i}" for i in range(9)]
        add_links(engine, *links)
        notes: list[str] = []
        text = "".join(row(link, slot, str(slot)) for slot in (3, 1, 0, 2, 1) for link in links)
        report = run(engine, HEADER + text, note=notes.append)
        assert (report.stored, report.repeated) == (36, 9)
        assert all(stored(engine, link) == {0: 0, 1: 1, 2: 2, 3: 3} for link in links)
        assert len(notes) > 1
        assert notes[-1] == "45 of 45 counts stored"
        assert report.forecasts_issued == 9

    def test_a_file_without_a_single_count(self, engine):
        add_links(engine, "A")
        report = run(engine, HEADER + row(count=""))
        assert (report.stored, report.gaps, report.first_slot) == (0, 1, None)


class TestRefused:
    def test_unknown_links_by_name(self, engine):
        add_links(engine, "A")
        report = run(engine, HEADER + row() + row("X") + row("X", 1) + row("Y"))
        assert (report.stored, report.refused, report.unknown_links) == (1, 3, ["X", "Y"])
        assert report.reasons == {"must name a link that exists": 3}
        assert [(one.field, one.value, one.line, one.values) for one in report.refusals] == [
            ("link_id", "X", None, 2),
            ("link_id", "Y", None, 1),
        ]
        assert adds_up(report)

    def test_future_slots_by_name(self, engine):
        add_links(engine, "A")
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        past, future = now - timedelta(hours=1), now + timedelta(hours=2)
        text = HEADER + f"A,{past.isoformat()},1,\nA,{future.isoformat()},2,\nA,{future.isoformat()},3,\n"
        report = run(engine, text, clock=WallClock())
        assert (report.stored, report.refused) == (1, 2)
        assert report.reasons == {"must not lie in the future": 2}
        assert report.refusals[0].value == f"{future:%Y-%m-%dT%H:%M:%SZ} of A"
        assert adds_up(report)

    def test_longer_slots_than_the_links_refuse_the_file(self, engine):
        add_links(engine, "A", slot_minutes=5, zone="UTC")
        with pytest.raises(
            CountFileError, match="slots of 15 minutes, and link A has slots of 5: counts cannot be split"
        ):
            run(engine, HEADER + row() + row(slot=1) + row(slot=2))
        assert stored(engine) == {}

    def test_a_file_that_breaks_off_stores_nothing(self, engine):
        add_links(engine, "A")
        packed = gzip.compress((HEADER + "".join(row(slot=slot) for slot in range(5000))).encode(), 0)
        with pytest.raises(CountFileError, match="truncated"):
            run(engine, packed[:-1000])
        assert stored(engine) == {}


class TestDryRun:
    def test_reports_the_same_and_stores_nothing(self, engine):
        add_links(engine, "A")
        run(engine, HEADER + row(count="3"))
        text = HEADER + row() + row(slot=1) + row("New", 0)
        dry = run(engine, text, create_links=True, dry_run=True, default_zone="UTC")
        assert dry.dry_run
        assert stored(engine) == {0: 3}
        with reading(engine) as session:
            assert [link.link_id for link in all_links(session)] == ["A"]
        real = run(engine, text, create_links=True, default_zone="UTC")
        assert real == dry.model_copy(update={"dry_run": False, "forecasts_issued": 2})
        assert (dry.stored, dry.replaced, dry.links_created) == (2, 1, 1)


class TestCreateLinks:
    def test_links_are_as_the_file_describes_them(self, engine):
        text = SURVEY_HEADER + "\n" + survey_row("2006-10-02", [4] * 96)
        report = run(engine, text, create_links=True)
        assert (report.links_created, report.stored) == (1, 96)
        with reading(engine) as session:
            [link] = session.scalars(select(Link)).all()
        assert link.zone == "Australia/Melbourne"
        assert link.geometry is not None
        assert link.geometry["type"] == "Point"
        assert link.slot_minutes == 15

    def test_existing_links_stay_as_they_are(self, engine):
        add_links(engine, "A", name="Main St", zone="Europe/Berlin")
        report = run(engine, HEADER + row() + row("B"), create_links=True, default_zone="UTC")
        assert report.links_created == 1
        with reading(engine) as session:
            assert {link.link_id: link.name for link in all_links(session)} == {"A": "Main St", "B": "B"}

    def test_a_name_too_long_and_a_position_off_the_earth_do_not_stop_it(self):
        made = as_link(ImportedLink("A", "x\x00" * 300, zone_named("UTC"), 95.0, 10.0), SlotGrid(5))
        assert (made.name, made.geometry, made.slot_minutes) == ("x" * 200, None, 5)


class TestPostImport:
    def test_stores_a_file_and_issues_forecasts(self, client, put_link):
        put_link("A")
        answer = client.post("/v1/import", content=HEADER + row() + row(slot=1))
        assert answer.status_code == 200
        assert (answer.json()["stored"], answer.json()["forecasts_issued"]) == (2, 1)
        forecast = client.get("/v1/links/A/forecast").json()
        assert forecast["forecasts"][0]["as_of_slot"] == "2025-09-01T00:15:00Z"

    @pytest.mark.parametrize("packing", ["gzip", "zip", "content-encoding"])
    @on_sqlite
    def test_packed_files_are_welcome(self, client, put_link, packing):
        put_link("A")
        body, headers = (HEADER + row()).encode(), {}
        if packing == "zip":
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as out:
                out.writestr("a.csv", body)
                out.writestr("b.csv", HEADER + row(slot=1))
            content = archive.getvalue()
        else:
            content = gzip.compress(body)
            headers = {"Content-Encoding": "gzip"} if packing == "content-encoding" else {}
        answer = client.post("/v1/import", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["stored"] == (2 if packing == "zip" else 1)

    def test_a_dry_run_issues_nothing(self, client, put_link):
        put_link("A")
        report = client.post("/v1/import?dry_run=true", content=HEADER + row()).json()
        assert (report["dry_run"], report["stored"], report["forecasts_issued"]) == (True, 1, 0)
        assert client.get("/v1/links/A/counts").json()["counts"] == []

    def test_links_are_created_on_request(self, client):
        report = client.post("/v1/import?create_links=true&zone=UTC", content=HEADER + row("New")).json()
        assert (report["links_created"], report["stored"]) == (1, 1)
        assert client.get("/v1/links/New").status_code == 200

    @pytest.mark.parametrize("dry_run", [False, True])
    @on_sqlite
    def test_a_new_link_without_a_zone_is_refused_with_what_to_do(self, client, dry_run):
        path = f"/v1/import?create_links=true&dry_run={dry_run}"
        answer = client.post(path, content=HEADER + row("New"))
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["field"], error["value"]) == ("zone", "")
        assert "to create link 'New', because the file names none: give --zone" in error["reason"]
        assert "FLOWCAST_DEFAULT_ZONE" in error["reason"]
        assert client.get("/v1/links").json()["links"] == []

    def test_creating_links_needs_the_scope_admin(self, client):
        made = client.post("/v1/admin/keys", json={"name": "feed", "scopes": ["ingest"]})
        assert made.status_code == 201, made.text
        key = {"X-API-Key": made.json()["key"]}
        assert client.post("/v1/import?create_links=true", content=HEADER + row(), headers=key).status_code == 403
        assert client.post("/v1/import", content=HEADER + row(), headers=key).status_code == 200

    @pytest.mark.parametrize(
        ("query", "body", "message"),
        [
            ("", b"", "is empty"),
            ("", b"\x00\x01\x02", "is binary"),
            ("", b"hello", "unknown layout"),
            ("?format=scats-survey", (HEADER + row()).encode(), "has no column"),
            ("", gzip.compress(b"link_id,slot_start,count\n" * 100, mtime=0)[:-9], "truncated"),
            ("", b"PK\x03\x04 and then nothing", "cannot be read"),
            ("?format=papyrus", b"x", "it must be auto or one of"),
            ("?zone=Mars/Olympus", b"x", "Mars/Olympus"),
            ("?slot_minutes=7", b"x", "divides a day"),
            ("?dry_run=perhaps", b"x", "perhaps"),
        ],
    )
    @on_sqlite
    def test_what_cannot_be_read_is_refused_with_the_reason(self, client, query, body, message):
        answer = client.post(f"/v1/import{query}", content=body)
        assert answer.status_code == 422, answer.text
        assert message in answer.text
        assert "/tmp" not in answer.text

    def test_a_file_past_the_limit_is_too_large(self, client, monkeypatch):
        answer = client.post("/v1/import", content=b"x", headers={"Content-Length": str(2**31)})
        assert answer.status_code == 413


def five_minutes(*counts, link_id="A", first=0):
    starts = [MIDNIGHT + timedelta(minutes=first + 5 * i) for i in range(len(counts))]
    return "".join(f"{link_id},{at.isoformat()},{count},\n" for at, count in zip(starts, counts, strict=True))


class TestSlotLength:
    def test_short_rows_are_summed_into_the_slots_of_each_link(self, engine):
        add_links(engine, "A", zone="UTC")
        add_links(engine, "B", zone="UTC", slot_minutes=30)
        add_links(engine, "C", zone="UTC", slot_minutes=5)
        text = "".join(five_minutes(1, 2, 3, 4, 5, 6, 7, link_id=link) for link in "ABC")
        report = run(engine, HEADER + text)
        assert stored(engine, "A") == {0: 6, 1: 15}
        assert stored(engine, "B") == {0: 21}
        with reading(engine) as session:
            key = links_by_id(session, ["C"])["C"].link_key
            assert counts_between(session, [key], 0, 2**33)[:, 2].tolist() == [1, 2, 3, 4, 5, 6, 7]
        assert (report.rows, report.stored, report.gaps) == (21, 10, 2)
        assert adds_up(report)
        assert report.notes[0] == (
            "rows of 5 minutes are summed into 3 slots of 15 minutes; 1 of them lack a row or its count and are gaps"
        )

    def test_a_created_link_gets_the_requested_slot_length_and_zone(self, engine):
        text = HEADER + five_minutes(*[1] * 12)
        report = run(engine, text, grid=SlotGrid(60), zone="Europe/Berlin", create_links=True)
        with reading(engine) as session:
            [link] = all_links(session)
        assert (link.slot_minutes, link.zone_name, report.stored) == (60, "Europe/Berlin", 1)

    def test_an_incomplete_slot_leaves_a_stored_count_alone(self, engine):
        add_links(engine, "A", zone="UTC")
        run(engine, HEADER + five_minutes(1, 2, 3))
        report = run(engine, HEADER + five_minutes(9, 9, first=5))
        assert stored(engine) == {0: 6}
        assert (report.stored, report.replaced, report.gaps) == (0, 0, 1)

    @pytest.mark.parametrize("off", ["00:07", "00:15:30"])
    def test_a_file_off_the_grid_stores_nothing(self, engine, off):
        add_links(engine, "A", zone="UTC")
        with pytest.raises(CountFileError, match="off the grid"):
            run(engine, HEADER + five_minutes(*[1] * 30) + f"A,2025-09-01T{off}Z,4,\n", create_links=True)
        assert stored(engine) == {}


class TestPostedFiles:
    """Real layouts of files, imported over REST."""

    def test_a_file_off_the_grid_is_refused_whole(self, client, put_link):
        put_link("A", zone="UTC")
        answer = client.post("/v1/import", content=HEADER + row() + row(slot=0.5) + row(slot=1) + row(slot=2))
        assert answer.status_code == 422
        assert "off the grid" in answer.json()["detail"]
        assert client.get("/v1/links/A/counts").json()["counts"] == []

    def test_a_map_a_link_and_a_zone_read_any_csv(self, client, put_link):
        put_link("A7", zone="Europe/Berlin")
        text = "Time;Vol\n" + "".join(f"2025-09-01 02:{minute:02};{minute}\n" for minute in range(0, 60, 5))
        query = {"map": "slot_start=Time,count=Vol", "link": "A7", "zone": "Europe/Berlin"}
        report = client.post("/v1/import", params=query, content=text).json()
        assert (report["stored"], report["refused"]) == (4, 0)
        assert stored_over_rest(client, "A7") == [15, 60, 105, 150]

    @on_sqlite
    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ({"map": "vehicles=Vol"}, "it must give a column to link_id, slot_start, count, quality"),
            ({"map": "count=Vol"}, "has no column 'Vol' among"),
            ({"link": "A 7"}, "link"),
            ({"link": "A7", "map": "link_id=Detector"}, "must be left out where the map names a column"),
            ({"link": "A7"}, "so the option link must be left out"),
            ({"map": "count=Vol", "format": "pems-5min"}, "is refused with map or link, which only flowcast-csv"),
        ],
    )
    def test_columns_that_are_not_there_are_refused(self, client, query, message):
        answer = client.post("/v1/import", params=query, content=HEADER + row())
        assert answer.status_code == 422
        assert message in answer.json()["detail"]

    @on_sqlite
    def test_a_json_list_is_read(self, client, put_link):
        put_link("A", zone="UTC")
        rows = [{"link_id": "A", "slot_start": int(MIDNIGHT.timestamp()) + 900 * i, "count": 4.0} for i in range(3)]
        for document in (rows, {"counts": rows}):
            report = client.post("/v1/import", json=document).json()
            assert (report["stored"] + report["unchanged"], report["refused"]) == (3, 0)


def stored_over_rest(client, link_id):
    counts = client.get(f"/v1/links/{link_id}/counts").json()["counts"]
    return [one["count"] for one in counts if one["count"] is not None]


@on_sqlite
class TestForms:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_a_file_may_be_uploaded_in_a_form(self, client, put_link, pack):
        put_link("A", zone="UTC")
        body = pack((HEADER + row() + row(slot=1) + row(slot=2, count="-1")).encode())
        answer = client.post("/v1/import", files={"file": ("counts.csv", body)})
        assert answer.status_code == 200, answer.text
        assert (answer.json()["stored"], answer.json()["refused"]) == (2, 1)
        assert answer.json()["refusals"][0]["source"] == "counts.csv"

    @pytest.mark.journey
    def test_a_large_file_goes_to_disk(self, client, put_link):
        put_link("A", zone="UTC")
        text = HEADER + row() + row(slot=1) * 60_000
        report = client.post("/v1/import", files={"upload": ("counts.csv", text.encode())}).json()
        assert (report["stored"], report["repeated"]) == (2, 59_999)

    @pytest.mark.parametrize(
        "form",
        [
            {"files": {"a": ("a.csv", b"x"), "b": ("b.csv", b"x")}},
            {"files": {"a": ("a.csv", b"x")}, "data": {"zone": "UTC"}},
            {"content": b"nonsense", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
            {"content": b"nonsense", "headers": {"Content-Type": "multipart/form-data"}},
        ],
    )
    def test_other_forms_are_refused_with_what_to_do(self, client, form):
        answer = client.post("/v1/import", **form)
        assert answer.status_code == 422, answer.text
        assert "must be a form with the file as its only field, such as curl --form" in answer.json()["detail"]
