# On a fresh machine with Python 3.11+, git and make: `make demo` runs the main job, `make test` everything CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export COUNTERTRAIN_THREADS ?= 1
MAKEFLAGS += --jobs=2  # what can, goes on side by side: a browser is fetched while libraries are installed

.PHONY: demo test check style types chromium format bench docs clean

demo: $(INSTALLED)
	$(BIN)/countertrain demo --out demo

test: check chromium
	$(BIN)/python -m pytest -n 2

# The page is tested in a browser. Where it can be installed without asking it is; else these tests are skipped.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20
chromium:
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ $(APT) update && $(APT) install -y --no-install-recommends chromium; } >/dev/null 2>&1 || true

check: style types

style: $(INSTALLED)
	$(BIN)/ruff format --check src tests benchmarks reproduction
	$(BIN)/ruff check src tests benchmarks reproduction

types: $(INSTALLED)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format src tests benchmarks reproduction
	$(BIN)/ruff check --fix src tests benchmarks reproduction

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks --page docs/performance.md

docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict --site-dir site

# The pins of constraints.txt are what was tested; torch is pinned so that no other build of it is drawn in.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
