"""Rules that keep the tests independent of one another and of the machine's speed."""

import ast
from functools import cache
from pathlib import Path

import yaml

from tests.support.postgresql import NEWEST_VERSION, VERSION

ROOT = Path(__file__).parents[1]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SUPPORT = ROOT / "tests" / "support"
CLOCKS = {"sleep", "monotonic", "perf_counter", "process_time"}
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}  # of named tuples


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> set[str]:
    """Return the modules that a module imports, and the names it imports from them, dotted."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_what_tests_share_comes_from_support():
    wrong = []
    for path in TESTS:
        parts = [name.split(".") for name in imported(path)]
        wrong += [f"{path.name}: {'.'.join(name)}" for name in parts if name[0] == "tests" and name[1] != "support"]
        if path.parent.name != "benchmarks":
            wrong += [f"{path.name}: {'.'.join(name)}" for name in parts if name[0] == "benchmarks"]
    assert not wrong


def test_no_private_attribute_of_the_app_is_used():
    private = [
        f"{path.name}:{node.lineno} {node.attr}"
        for path in TESTS
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    names = [name for path in TESTS for name in imported(path) if name.startswith(("app.", "model.")) and "._" in name]
    assert not private + names


def test_conditions_are_waited_for_and_no_time_is_measured():
    wrong = []
    for path in TESTS:
        if SUPPORT in path.parents:
            continue
        wrong += [f"{path.name}: {name}" for name in imported(path) if name in {f"time.{clock}" for clock in CLOCKS}]
        wrong += [
            f"{path.name}:{node.lineno} time.{node.attr}"
            for node in nodes(path)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "time"
            and node.attr in CLOCKS
        ]
    assert not wrong


def test_tests_run_on_the_postgresql_that_compose_ships():
    assert f"supports PostgreSQL {VERSION} to {NEWEST_VERSION}" in (ROOT / "docs" / "operations.md").read_text()
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["database"]["image"] == f"postgres:{VERSION}"
