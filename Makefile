# Two commands do everything on a fresh machine: `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup reproduce test lint types docs notebooks dist wheels bench sanitize processors lock clean

help:
	@echo "make reproduce   set up, then print the paper's tables from the shipped models"
	@echo "make test        set up, then lint, check types and run all tests, the engine's under the sanitizers too"
	@echo "make docs        build the documentation as a site, build/site/index.html"
	@echo "make notebooks   run the notebooks and store what they give"
	@echo "make dist        build and check the source distribution and the pure wheel"
	@echo "make wheels      the same, and a wheel with a prebuilt engine"
	@echo "make bench       measure speed against PyTorch, torch.compile and JAX"
	@echo "make sanitize    run the native engine's tests under the address, UB and thread sanitizers"
	@echo "make processors  run the tests of single accesses with builds for lesser processors"
	@echo "make lock        find the hashes of the dependencies anew"

# Everything by its hash; docs/dependencies.md tells how the lists in requirements/ are made.
LOCKED := $(BIN)/pip install --quiet --no-deps --require-hashes --requirement
ITSELF := $(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .

$(VENV)/ready: pyproject.toml requirements/torch.txt requirements/run.txt
	$(PYTHON) -m venv $(VENV)
	PIP=$(BIN)/pip sh requirements/torch.sh
	$(LOCKED) requirements/run.txt
	$(ITSELF)
	touch $@

$(VENV)/ready-for-tests: $(VENV)/ready requirements/test.txt
	$(LOCKED) requirements/test.txt
	$(ITSELF)
	sh tests/view/install_browser.sh
	touch $@

setup: $(VENV)/ready-for-tests

reproduce: $(VENV)/ready
	$(BIN)/ham reproduce

test: setup lint types
	$(BIN)/python -m pytest -n auto --dist loadfile
	bash tests/ops/sanitize.sh -n auto
	HAM_SANITIZE=thread bash tests/ops/sanitize.sh
	bash tests/ops/processors.sh -n auto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# Warnings are errors, links that lead nowhere among them; a test builds the site in the same way.
docs: setup
	$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs build/site
	@echo "build/site/index.html"

notebooks: setup
	$(BIN)/jupyter-execute --inplace docs/notebooks/*.ipynb

dist: setup
	$(BIN)/python scripts/release.py

wheels: setup
	$(BIN)/python scripts/release.py --prebuilt

# JAX, the peer it is measured against, takes some 500 MB: only who measures installs it.
bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/ham bench

sanitize: setup
	bash tests/ops/sanitize.sh
	HAM_SANITIZE=thread bash tests/ops/sanitize.sh

processors: setup
	bash tests/ops/processors.sh

# Versions are chosen in constraints.txt; this finds what they depend on and all their hashes.
COMPILE := build/lock/bin/pip-compile --quiet --generate-hashes --strip-extras --constraint constraints.txt \
	--all-build-deps --unsafe-package torch --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools==7.6.2
	$(COMPILE) --extra view --output-file build/run.txt pyproject.toml
	$(COMPILE) --extra dev --output-file build/test.txt pyproject.toml
	for list in run test; do sed '/^#/d; /^ham-memory/d' build/$$list.txt > requirements/$$list.txt; done

clean:
	rm -rf $(VENV) build dist runs reproduction
