"""One evaluation of the sample city, through the command, and one of an odd link, for all tests that look at them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.demo.city import sample_city, write_csv
from app.evaluation.evaluate import Evaluated, evaluate_link
from tests.support.evaluation import MARKUP, PLAN, steady_link, with_counts


@pytest.fixture(scope="session")
def city_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("counts") / "city.csv.gz"
    write_csv(sample_city(links=2, days=10), file)
    return file


@pytest.fixture(scope="session")
def city_report(city_file, tmp_path_factory) -> Path:
    """Return the folder of a report on two links, 8 + 2 days."""
    folder = tmp_path_factory.mktemp("report") / "made" / "here"
    command = ["evaluate", str(city_file), "--train-days", "8", "--test-days", "2", "--zone", "Europe/Berlin"]
    done = CliRunner().invoke(cli, [*command, "--lags", "12", "--jobs", "1", "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="session")
def city_json(city_report) -> dict[str, Any]:
    return json.loads((city_report / "report.json").read_text())


@pytest.fixture(scope="session")
def odd_link() -> Evaluated:
    """Return a link with a few gaps on its test days, and an id that is markup."""
    link = steady_link(MARKUP, zone="Australia/Melbourne")
    counts = link.counts.copy()
    counts[8 * 96 + 10 : 8 * 96 + 14] = np.nan
    done = evaluate_link(with_counts(link, counts), PLAN)
    assert isinstance(done, Evaluated), done
    return done
