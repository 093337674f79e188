# Two commands do everything on a fresh machine: `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup reproduce test lint types bench sanitize clean

help:
	@echo "make reproduce   set up, then print the paper's tables from the shipped models"
	@echo "make test        set up, then lint, check types and run all tests"
	@echo "make bench       measure speed against PyTorch, torch.compile and JAX"
	@echo "make sanitize    run the native engine's tests under the address and UB sanitizers"

# torch first and pinned: asked for loosely, pip would fetch gigabytes of GPU libraries.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[view]'
	touch $@

$(VENV)/ready-for-tests: $(VENV)/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	sh tests/view/install_browser.sh
	touch $@

setup: $(VENV)/ready-for-tests

reproduce: $(VENV)/ready
	$(BIN)/ham reproduce

test: setup lint types
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# JAX, the peer it is measured against, takes some 500 MB: only who measures installs it.
bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/ham bench

sanitize: setup
	bash tests/ops/sanitize.sh

clean:
	rm -rf $(VENV) build dist runs reproduction
