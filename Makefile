# make test   environment, checks and all tests
# make demo   the sample city, its models, the service and a replay (DEMO_SECONDS=60 stops by itself)
# make check  ruff and mypy only
# make bench  accuracy, the speed ratios and the paper's table (twenty minutes)
# make setup  the environment alone
# make clean  forget the environment, the demo and caches

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup test demo check bench clean
.DELETE_ON_ERROR:

setup: $(READY)

$(READY): requirements/runtime.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Flowcast needs Python 3.11 or newer; make PYTHON=python3.x names one." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: check
	$(BIN)/pytest

demo: $(READY)
	@DEMO_SECONDS=$(DEMO_SECONDS) $(BIN)/flowcast demo

bench: $(READY)
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.fit_speed
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.paper_table

clean:
	rm -rf .venv .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
