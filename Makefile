# `make demo` shows what dubito does, `make quick` is the inner loop of a developer, `make test` is
# what CI runs. Each creates the .venv that it needs.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile --constraint constraints.txt
# Work stealing starts each process on one half of the tests, so that few module fixtures run twice.
PARALLEL := --numprocesses 2 --dist worksteal
# Tests start many processes, which should not compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo quick test lint types check check-kernels collect docs system size benchmark sample release-check matrix clean

demo: .venv/demo
	$(BIN)/dubito demo

quick: .venv/dev
	$(BIN)/pytest -m "not (slow or browser or postgres or torch or dask)" \
		--hypothesis-profile quick $(PARALLEL)

# Two at a time: while types are checked, the tests of the kernels compile these, once for the two
# processes that then run all other tests, whose bytecode is written once as well.
test: .venv/dev system lint
	$(MAKE) --jobs 2 collect check-kernels
	$(BIN)/pytest --ignore tests/kernels $(PARALLEL)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

collect: types
	@$(BIN)/pytest --collect-only --quiet > /dev/null

check-kernels: .venv/dev
	$(BIN)/pytest tests/kernels

check: .venv/dev system check-kernels
	$(BIN)/pytest --ignore tests/kernels $(PARALLEL)

# The site, in build/docs: runs every script of the gallery, checks every internal link, and takes
# any warning for an error. Nothing is fetched.
docs: .venv/docs
	$(BIN)/python -m sphinx --fail-on-warning --builder html --doctree-dir build/doctrees \
		docs build/docs

size: .venv/dev
	$(BIN)/python -m benchmarks.source_size

benchmark: .venv/benchmark
	$(BIN)/python -m benchmarks.row_pass
	$(BIN)/python -m benchmarks.calibration_speed

# Builds the wheel and the sdist, and tests them in empty environments outside of this directory:
# the wheel alone and with each extra; then each Python on this machine with the lowest and the
# newest dependencies.
release-check: .venv/dev
	$(BIN)/python -m tools.release check

matrix: release-check
	$(BIN)/python -m tools.release matrix --record docs/matrix.txt

sample: .venv/study
	$(BIN)/python -m studies.sample_predictions

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

# Numba does not notice that a kernel calls another one that has changed, so any change to a kernel
# empties the cache.
.venv/kernels: $(wildcard src/dubito/kernels/*.py)
	mkdir -p .venv
	rm -f src/dubito/kernels/__pycache__/*.nbi src/dubito/kernels/__pycache__/*.nbc
	touch $@

.venv/demo: .venv/python .venv/kernels pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/demo
	$(PIP) --editable '.[dev]'
	touch $@

# Some tests need Chromium, PostgreSQL or Fashion-MNIST. Where they may be installed they are;
# elsewhere these tests are skipped, and pytest prints why (with CI set, a skip fails).
system:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		missing=; \
		command -v chromium > /dev/null || missing="$$missing chromium"; \
		command -v pg_ctl > /dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl > /dev/null 2>&1 \
			|| missing="$$missing postgresql"; \
		test -d /usr/share/datasets/fashion-mnist || missing="$$missing dataset-fashion-mnist"; \
		test -z "$$missing" || { apt-get update -qq && apt-get install -y -qq $$missing; }; \
	fi

.venv/docs: .venv/demo
	$(PIP) --editable '.[docs]'
	touch $@

.venv/benchmark: .venv/dev benchmarks/requirements.txt
	$(PIP) --requirement benchmarks/requirements.txt
	touch $@

.venv/study: .venv/dev
	$(PIP) torch
	touch $@

clean:
	rm -rf .venv build docs/api docs/gallery
