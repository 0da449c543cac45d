"""One evaluation of the sample city, through the command, for all tests that look at its report."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.demo.city import sample_city, write_csv


@pytest.fixture(scope="session")
def city_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("counts") / "city.csv.gz"
    write_csv(sample_city(links=3, days=13), file)
    return file


@pytest.fixture(scope="session")
def city_report(city_file, tmp_path_factory) -> Path:
    """The folder of a report on three links, 10 + 3 days."""
    folder = tmp_path_factory.mktemp("report") / "made" / "here"
    command = ["evaluate", str(city_file), "--train-days", "10", "--test-days", "3", "--zone", "Europe/Berlin"]
    said = CliRunner().invoke(cli, [*command, "--jobs", "1", "--output", str(folder)])
    assert said.exit_code == 0, said.output
    return folder


@pytest.fixture(scope="session")
def city_json(city_report) -> dict[str, Any]:
    return json.loads((city_report / "report.json").read_text())
