import csv

import pytest

from app.evaluation.tables import COUNT, LEVEL, RATIO, SHARE, VEHICLES, rounded

MEASURES = {
    "4": ("train", {"rmse", "mare"}),
    "5": ("test", {"rmse", "mare"}),
    "6": ("test", {"wape", "geh_pass_share"}),
    "7": ("test", {"coverage", "interval_width"}),
    "8": ("test", {"skill_profile", "skill_last_week"}),
}


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (None, SHARE, "n/a"),
        (12345.0, COUNT, "12,345"),
        (20.006, VEHICLES, "20.01"),
        (0.12345, RATIO, "0.123"),
        (-0.0123, SHARE, "-1.2 %"),
        (0.9, LEVEL, "90 %"),
    ],
)
def test_figures_are_rounded(value, style, text):
    assert rounded(value, style) == text


def test_the_csv_has_every_table_at_full_precision(city_report, city_json):
    with (city_report / "tables.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["table"] for row in rows} == {"3", *MEASURES}
    links = {link["link_id"]: {m["method"]: m for m in link["methods"]} for link in city_json["links"]}
    for row in rows:
        methods = links[row["link_id"]]
        if row["table"] == "3":
            ranks = {name: m["rank"] for name, m in methods.items()}
            assert {name: int(row[name]) if row[name] else None for name in methods} == ranks
            continue
        part, measures = MEASURES[row["table"]]
        assert row["part"] == part
        assert row["measure"] in measures
        values = {name: m[part][row["measure"]] for name, m in methods.items()}
        assert {name: float(row[name]) if row[name] else None for name in methods} == values
        if row["measure"] in ("rmse", "mare", "wape"):
            least = min(value for value in values.values() if value is not None)
            assert {values[name] for name in row["winner"].split("|")} == {least}
    assert len(rows) == 2 * (1 + 2 * len(MEASURES))
