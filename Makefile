# Two commands set up everything: `make demo` and `make test`. Both reuse .venv when nothing changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test check docs clean

demo: $(VENV)/.lab           ## compare all rankers on embedded data, write a report
	$(BIN)/pairrank demo --out pairrank-demo

test: $(VENV)/.all           ## the whole test suite; ARGS go to pytest
	scripts/test $(ARGS)

check: $(VENV)/.all          ## lint, format, types
	scripts/check

docs: $(VENV)/.all           ## build the documentation site into site/
	scripts/docs

# With the newest pip, which installs in half the time of the one that comes with Python 3.11.
$(BIN)/python:
	$(PYTHON) -m venv --upgrade-deps $(VENV)

$(VENV)/.lab: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[lab]'
	@touch $@

$(VENV)/.all: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[all,test,dev,docs]'
	@# One of its dependencies has no build for ARM; what the tests compare with works without.
	$(BIN)/python -m pip install --quiet --no-deps 'ir-measures>=0.3.3'
	@# Compiled once, here: tests start many processes at a time, and each would compile what it does not find.
	-$(BIN)/pairrank warm
	@touch $@ $(VENV)/.lab

clean:
	rm -rf $(VENV) site dist build pairrank-demo artifacts .mypy_cache .ruff_cache .pytest_cache
