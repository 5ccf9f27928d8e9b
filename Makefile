# Both commands work in a virtual environment of their own, since system Pythons refuse a bare pip install.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard native/src/*)

.PHONY: run test lint clean

run: $(VENV)/.run-installed
	$(BIN)/ling3

test: $(VENV)/.test-installed
	$(BIN)/pytest

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/mypy
	set -e; for folder in $$(dirname tests/*/*.py | sort -u); do $(BIN)/mypy $$folder; done

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[console]'
	touch $@

$(VENV)/.test-installed: pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[console,test]'
	touch $@ $(VENV)/.run-installed

clean:
	rm -rf $(VENV) build
