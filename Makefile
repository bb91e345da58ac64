# On a fresh machine with Python 3.11+, git and make: `make demo` runs the main job, `make test` everything CI runs.
# `make paper` reproduces the paper (what results/records holds is not computed again; all of it takes many hours),
# `make bench` measures speed (about 20 minutes), `make advice` whether advice holds (an hour; records are kept),
# `make defaults` which settings are a good default (hours; records are kept, too), `make methods` compares all training
# methods (half an hour on an idle core; records are kept), `make reliability` what kills, full
# disks, damaged files and deliberate bugs do (an hour or two), of which `make mutants` does the deliberate bugs.
# For a release: `make dist` builds the sdist and the wheel, `make delivery` tries them in a new virtual environment (minutes),
# `make sbom` lists what is in there (CycloneDX), `make licences` writes docs/licences.md, `make pins` checks constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := src tests benchmarks release reproduction
PACKAGE := $(VENV)/.installed-package
TOOLS := $(VENV)/.installed-tools
export COUNTERTRAIN_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # libraries are not compiled when installed: each process would do it again
MAKEFLAGS += --jobs=2  # what can, goes on side by side: a browser is fetched while libraries are installed

.PHONY: demo test pytest warm check style types chromium format paper bench advice defaults methods referees reliability mutants docs dist delivery sbom licences pins clean

demo: $(PACKAGE)
	$(BIN)/countertrain demo --out demo

# Types are checked while the tests begin, which takes a minute of one core.
test: types pytest

# Tests of a file go to one process, which makes what they share once; long files with few tests do not come last.
pytest: style chromium warm
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40

# What each of the processes would compile when it imports it is compiled while the tools are installed.
warm: $(PACKAGE)
	$(BIN)/python -c "import matplotlib.pyplot, pandas, scipy.stats, sklearn.ensemble, torch._inductor.compile_fx"

# The page is tested in a browser. Where it can be installed without asking it is; else these tests are skipped.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20
chromium:
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ $(APT) update && $(APT) install -y --no-install-recommends chromium; } >/dev/null 2>&1 || true

check: style types

style: $(TOOLS)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

types: $(TOOLS)
	$(BIN)/mypy

format: $(TOOLS)
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

paper: $(PACKAGE)
	$(BIN)/python -m reproduction all --document docs/reproduction.md

bench: $(TOOLS)
	$(BIN)/python -m benchmarks --page docs/performance.md

advice: $(TOOLS)
	$(BIN)/python -m benchmarks.advice --jobs 2 --page docs/advice.md

defaults: $(TOOLS)
	$(BIN)/python -m benchmarks.defaults --jobs 2 --page docs/advice.md

methods: $(TOOLS)
	$(BIN)/python -m benchmarks.methods --page docs/methods.md

# reachml wants other versions of numpy and pandas, and a solver: cplex, whose free edition is on PyPI (Python 3.11).
REFEREE := build/referee
GMSC ?= $(or $(COUNTERTRAIN_DATA),../shared/data)/give_me_some_credit_balanced.csv.gz
referees: $(TOOLS)
	test -x $(REFEREE)/venv/bin/python || $(PYTHON) -m venv $(REFEREE)/venv
	$(REFEREE)/venv/bin/python -m pip install --quiet --disable-pip-version-check reachml==0.2.0a1 cplex scipy scikit-learn
	$(BIN)/python -m benchmarks.referee ask $(REFEREE) --source $(GMSC)
	$(REFEREE)/venv/bin/python benchmarks/referee.py enumerate $(REFEREE)
	$(BIN)/python -m benchmarks.referee compare $(REFEREE)

reliability: $(TOOLS)
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.fuzz
	$(BIN)/python tests/serve/fuzzing.py
	$(BIN)/python -m tests.mutants
	$(BIN)/python -m tests.mutants --random 30
	$(BIN)/python -m tests.reliability

mutants: $(TOOLS)
	$(BIN)/python -m tests.mutants

docs: $(TOOLS)
	$(BIN)/mkdocs build --strict --site-dir site

dist: $(TOOLS)
	$(BIN)/python -m release.dist

delivery: dist
	$(BIN)/python -m release.trial

# Of what the Containerfile installs, with a tool that has an environment of its own.
sbom: dist
	$(BIN)/python -m release.sbom

licences: $(TOOLS)
	$(BIN)/python -m release.licences docs/licences.md

pins: $(TOOLS)
	$(BIN)/python -m release.pins

# The pins of constraints.txt are what was tested. Most of the package's libraries is never imported, so it is not
# compiled (28 s); the tools are, because tests turn warnings of the compiler into errors.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
$(PACKAGE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-compile --editable .
	touch $@

$(TOOLS): $(PACKAGE)
	$(INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
