"""docs/reliability.md: every promise is kept by a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def table() -> list[list[str]]:
    lines = [line for line in PAGE.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert lines[0] == "| fault | promise | test |"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_has_a_row_for_every_kind_of_fault():
    faults = " ".join(row[0] for row in table())
    for fault in (
        "service", "worker", "PostgreSQL", "batch", "retrain", "activation", "migration", "30 seconds", "disk is full",
        "one bit", "cut short", "newer format", "two workers", "clock", "twice, out of order, or a week late",
        "slow or silent client",
    ):  # fmt: skip
        assert fault in faults


@pytest.mark.parametrize("row", table(), ids=lambda row: row[0][:60])
def test_every_row_is_complete_and_names_a_test_that_exists(row: list[str]):
    assert len(row) == 3
    fault, promise, named = row
    assert fault
    assert promise
    found = TEST.fullmatch(named)
    assert found, f"{named} is refused; it must be `tests/….py::test_…` or `tests/….py`"
    functions = {
        node.name for node in ast.walk(ast.parse((ROOT / found[1]).read_text())) if isinstance(node, ast.FunctionDef)
    }
    assert found[2] in functions if found[2] else any(name.startswith("test_") for name in functions)
