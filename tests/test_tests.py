"""Rules that keep the tests independent of one another and of the machine's speed."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from tests.support.postgresql import NEWEST_VERSION, VERSION

ROOT = Path(__file__).parents[1]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SUPPORT = ROOT / "tests" / "support"
CLOCKS = {"sleep", "usleep", "monotonic", "perf_counter", "process_time", "thread_time", "default_timer"}
LEAST_SECONDS = 60  # of a deadline: a passing test does not use it, and a busy machine may need long
WAITS = {"wait", "join", "acquire", "get", "result", "communicate"}
LONGEST_NAME = 70
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
            assert not node.level, f"{path.name}:{node.lineno} is a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def texts(path: Path, *, of: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the texts that are passed to functions and methods of these names."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and name_of(node.func) in of:
            yield from ((arg.lineno, arg.value) for arg in node.args if is_constant(arg, str))


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_constant(node: ast.AST, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind) and not isinstance(node.value, bool)


def is_short(node: ast.AST) -> bool:
    return (is_constant(node, int) or is_constant(node, float)) and 0 < node.value < LEAST_SECONDS


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def test_what_tests_share_comes_from_support():
    wrong = []
    for path in TESTS:
        names = imported(path) | {text for _, text in texts(path, of={"import_module", "__import__", "importorskip"})}
        parts = [name.split(".") for name in names]
        wrong += [f"{path.name}: {'.'.join(name)}" for name in parts if name[0] == "tests" and name[1:2] != ["support"]]
        if path.parent.name != "benchmarks":
            wrong += [f"{path.name}: {'.'.join(name)}" for name in parts if name[0] == "benchmarks"]
    assert not wrong


def test_no_private_attribute_of_the_app_is_used():
    private = [
        f"{path.name}:{node.lineno} {node.attr}"
        for path in TESTS
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and is_private(node.attr)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    names = [name for path in TESTS for name in imported(path) if name.startswith(("app.", "model.")) and "._" in name]
    by_text = [
        f"{path.name}:{line} {text}"
        for path in TESTS
        for line, text in texts(path, of={"getattr", "setattr", "hasattr", "delattr", "attrgetter", "patch"})
        if any(is_private(part) for part in text.split("."))
    ]
    assert not private + names + by_text


def test_no_time_is_measured_and_nothing_sleeps():
    """Waits that pace a loop are ``Event.wait``; conditions are waited for with ``wait_until``."""
    wrong = []
    for path in TESTS:
        if SUPPORT in path.parents:
            continue
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                wrong += [f"{path.name}: time.{alias.name}" for alias in node.names if is_clock(alias.name)]
            elif isinstance(node, ast.Call) and is_clock(name_of(node.func)) and not is_allowed(node, path):
                wrong.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert not wrong


def is_clock(name: str) -> bool:
    return name.removesuffix("_ns") in CLOCKS


def is_allowed(call: ast.Call, path: Path) -> bool:
    """Return whether a call reads the clock of a module of the app, to set it, or is ``asyncio.sleep(0)``."""
    of = ast.unparse(call.func).rpartition(".")[0]
    of_app = {
        alias.asname or alias.name
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("app")
        for alias in node.names
    }
    return of in of_app or ast.unparse(call) == "asyncio.sleep(0)"


def test_deadlines_are_generous():
    wrong = []
    for path in TESTS:
        if SUPPORT in path.parents:
            continue
        asserted = {id(inner) for node in nodes(path) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
        for call in nodes(path):
            if not isinstance(call, ast.Call):
                continue
            short = [word for word in call.keywords if (word.arg or "").endswith("timeout") and is_short(word.value)]
            # Without an assertion it paces a loop.
            if id(call) in asserted and name_of(call.func) in WAITS:
                short += [arg for arg in call.args if is_short(arg)]
            wrong += [f"{path.name}:{call.lineno} {ast.unparse(call)}" for _ in short]
    assert not wrong


def test_names_of_tests_are_short():
    long = [
        f"{path.name}: {node.name}"
        for path in TESTS
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.name) > LONGEST_NAME
    ]
    assert not long


def test_tests_run_on_the_postgresql_that_compose_ships():
    assert f"supports PostgreSQL {VERSION} to {NEWEST_VERSION}" in (ROOT / "docs" / "operations.md").read_text()
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["database"]["image"] == f"postgres:{VERSION}"
