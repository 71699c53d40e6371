# `make demo` shows dubito at work, `make test` is what CI runs. Each makes its own .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test lint types check benchmark sample clean

demo: .venv/demo
	$(BIN)/dubito demo

test: lint types check

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

check: .venv/dev .venv/system
	$(BIN)/pytest --numprocesses 2

benchmark: .venv/benchmark
	$(BIN)/python -m benchmarks.row_pass
	$(BIN)/python -m benchmarks.calibration_speed

sample: .venv/study
	$(BIN)/python -m studies.sample_predictions

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

# Numba does not see that a kernel calls one that has changed: a changed kernel empties its cache.
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

# Tests open pages in a real browser, keep decisions in PostgreSQL, and learn from Fashion-MNIST.
.venv/system: .venv/dev
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	command -v pg_ctl > /dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl > /dev/null 2>&1 \
		|| { apt-get update -qq && apt-get install -y -qq postgresql; }
	test -d /usr/share/datasets/fashion-mnist \
		|| { apt-get update -qq && apt-get install -y -qq dataset-fashion-mnist; }
	touch $@

.venv/benchmark: .venv/dev benchmarks/requirements.txt
	$(PIP) --requirement benchmarks/requirements.txt
	touch $@

.venv/study: .venv/dev
	$(PIP) torch
	touch $@

clean:
	rm -rf .venv
