# On a fresh machine with Python 3.11+, git and make: `make demo` runs the main job, `make test` everything CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export COUNTERTRAIN_THREADS ?= 1

.PHONY: demo test check format bench docs clean

demo: $(INSTALLED)
	$(BIN)/countertrain demo --out demo

test: check
	$(BIN)/python -m pytest -n 2

check: $(INSTALLED)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

bench: $(INSTALLED)
	$(BIN)/countertrain bench --page docs/performance.md

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
