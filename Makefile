# make demo   the sample city, its models, the service and a replay (DEMO_SECONDS=60 stops by itself, DEMO_PORT=8001)
# make test   environment, checks and all tests
# make quick  ruff, mypy and most of the tests that start no process, server or browser (less than two minutes)
# make check  ruff, mypy, bandit, hadolint and the compose schema only
# make audit  known advisories about the packages Flowcast runs on (needs a network)
# make bench  accuracy, the speed ratios, load, history and the paper's table (an hour)
# make screenshots  pictures of the operators' page, from a demo of its own (some minutes; needs Chromium)
# make setup  the environment alone, with everything for working on it
# make clean  remove the environments, the demo and caches

PYTHON ?= python3
BIN := .venv/bin
# Compiled modules are kept, whatever the shell says: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# Two stamps, because a demo needs half of the packages: those that Flowcast runs on, and those for working on it.
RUNS := .venv/.runs
READY := .venv/.ready
AUDIT := .venv-audit/.ready

.PHONY: setup test quick demo check audit bench screenshots clean
.DELETE_ON_ERROR:

setup: $(READY)

# $(call install,OPTIONS): every package is pinned, so that a failure nearly always means that no index was reached.
define install
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --retries 1 $(1) || { \
	  echo "make: pip failed, see above; without a package index, check the network or set PIP_INDEX_URL, then run make again" >&2; \
	  exit 1; }
endef

$(RUNS): requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Flowcast needs Python 3.11 or newer; make PYTHON=python3.x names one." if sys.version_info < (3, 11) else 0)'
	@echo "making the environment .venv"
	@$(PYTHON) -m venv .venv
	$(call install,--requirement requirements/runtime.txt --editable .)
	@touch $@

# Modules are compiled as they are used: compiling all of them takes as long as installing them.
$(READY): requirements/dev.txt requirements/cluster.txt requirements/s3.txt $(RUNS)
	$(call install,--no-compile --requirement requirements/dev.txt)
	@touch $@

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml app model migrations
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

# A process more than cores: many tests wait for the processes they started.
test: check
	PYTEST_XDIST_AUTO_NUM_WORKERS=$$(($$($(BIN)/python -c 'import os; print(os.cpu_count())') + 1)) $(BIN)/pytest

quick: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -m "not journey"

demo: $(RUNS)
	@DEMO_SECONDS=$(DEMO_SECONDS) DEMO_PORT=$(DEMO_PORT) $(BIN)/flowcast demo

# In an environment of its own: what looks for advisories should not be among what is looked at, or worked with.
$(AUDIT): requirements/audit.txt
	@$(PYTHON) -m venv .venv-audit
	@echo "installing pip-audit"
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

audit: $(AUDIT)
	.venv-audit/bin/pip-audit --requirement requirements/runtime.txt --requirement requirements/cluster.txt \
	  --requirement requirements/s3.txt --no-deps --disable-pip --strict

bench: $(READY)
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.page
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.history
	$(BIN)/python -m benchmarks.fit_speed
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.paper_table

screenshots: $(READY)
	$(BIN)/python -m benchmarks.screenshots

clean:
	rm -rf .venv .venv-audit .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
