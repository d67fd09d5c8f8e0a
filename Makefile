# Commands for developers. They need Python 3.11 or newer and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The folder of the service's journal; PORT and STATION may be set, too: make serve PORT=9000 STATION=S4
DATA ?= results/serve
PORT ?= 8765
STATION ?= S1

# Hundreds of processes are started by the tests: let them share bytecode, whatever the shell's setting.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs reproduce pages demo serve check test lint format install bench peers study wheel lock clean
help:  ## list these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

reproduce: install  ## reproduce the paper: tables, figures, claims with verdicts, one report, in 7 minutes
	$(BIN)/idleband reproduce --out results/paper

docs: $(VENV)/.installed-docs  ## build the documentation site into site/, with warnings as errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs site
	@echo "site/index.html"

$(VENV)/.installed-docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

pages: reproduce  ## update the figures and the claims in docs/ from the reproduction
	$(BIN)/python studies/pages.py
	$(BIN)/python studies/verdict_changes.py

demo: install  ## rank seven policies in two scenarios, in a minute
	$(BIN)/idleband compare S1 S4 --out results/demo

serve: install  ## assign channels over HTTP to a simulated base station, with a web page at localhost:8765
	$(BIN)/idleband serve --policy mp-belief-lucb --channels 10 --users 5 --dimension 8 --data $(DATA) --station $(STATION) --port $(PORT)

check: lint  ## lint, types, import rules and the fast tests: run it before each commit
	$(BIN)/pytest -n auto -m "not slow"

test: lint  ## lint, types, import rules and all tests
	$(BIN)/pytest -n auto

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## format the sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install: $(INSTALLED)  ## create .venv and install the package and its tools into it
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "idleband needs Python 3.11 or newer; choose one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve,postgres,telemetry,sigmf,gym,cluster]'
	@touch $@

bench: install  ## measure the speed of every policy, also against NumPy and against the floor of MP-NUCB
	$(BIN)/idleband bench
	$(BIN)/python benchmarks/against_numpy.py
	$(BIN)/python benchmarks/neural.py

PEERS := .venv-peers
peers: $(PEERS)/.installed  ## measure the package beside other bandit libraries, in an environment of their own
	$(PEERS)/bin/python -W ignore benchmarks/peers.py

$(PEERS)/.installed: benchmarks/peers-requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r benchmarks/peers-requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps calvera==1.0.2
	@touch $@

study: install  ## run the studies behind docs/explanation/{neural,ranking,beyond}.md again, in about 90 minutes
	$(BIN)/python studies/neural.py
	$(BIN)/python studies/ranking.py
	$(BIN)/python studies/robustness.py
	$(BIN)/python studies/worlds.py
	$(BIN)/python studies/optimum.py

wheel: install  ## build a wheel into dist/
	$(BIN)/python -m build --wheel

lock: install $(VENV)/.installed-docs  ## write the installed versions into constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[gpu]'
	@{ head -1 constraints.txt; $(BIN)/python -m pip list --format=freeze --exclude idleband --exclude pip --exclude setuptools; } > constraints.new
	mv constraints.new constraints.txt

clean:  ## remove build output, the environment and results
	rm -rf $(VENV) dist build results site
