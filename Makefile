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
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

setup: $(VENV)/installed

reproduce: setup
	$(BIN)/ham reproduce

test: setup lint types
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	$(BIN)/ham bench

sanitize: setup
	bash tests/ops/sanitize.sh

clean:
	rm -rf $(VENV) build dist runs reproduction
