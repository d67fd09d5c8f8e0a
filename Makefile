# The developer's menu. Needs Python 3.11 or newer and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The folder of the service's journal; PORT and STATION may be set, too: make serve PORT=9000 STATION=S4
DATA ?= results/serve
PORT ?= 8765
STATION ?= S1

.PHONY: help docs reproduce pages demo serve test lint format install bench study wheel lock clean
help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

reproduce: install  ## the paper, regenerated and judged: tables, figures, claims, one report, in under ten minutes
	$(BIN)/idleband reproduce --out results/paper

docs: $(VENV)/.installed-docs  ## build the documentation site into site/, with warnings as errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs site
	@echo "site/index.html"

$(VENV)/.installed-docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

pages: reproduce  ## renew the figures and the claims in docs/ from the reproduction
	$(BIN)/python studies/pages.py

demo: install  ## seven policies side by side in two scenarios, ranked, in a minute
	$(BIN)/idleband compare S1 S4 --out results/demo

serve: install  ## hand out channels over HTTP to a simulated base station, with a page to watch at localhost:8765
	$(BIN)/idleband serve --policy mp-belief-lucb --channels 10 --users 5 --dimension 8 --data $(DATA) --station $(STATION) --port $(PORT)

test: lint  ## lint, types, import rules, all tests
	$(BIN)/pytest -n auto

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## put the sources into their standard form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install: $(INSTALLED)  ## create .venv and install the package and its tools into it
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "idleband needs Python 3.11 or newer; say which with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve]'
	@touch $@

bench: install  ## the speed of every policy, against the NumPy reference, and of MP-NUCB against its floor
	$(BIN)/idleband bench
	$(BIN)/python benchmarks/against_numpy.py
	$(BIN)/python benchmarks/neural.py

study: install  ## the studies behind docs/explanation/{neural,ranking,beyond}.md again, in about an hour and a half
	$(BIN)/python studies/neural.py
	$(BIN)/python studies/ranking.py
	$(BIN)/python studies/robustness.py

wheel: install  ## build a wheel into dist/
	$(BIN)/python -m build --wheel

lock: install $(VENV)/.installed-docs  ## write the installed versions into constraints.txt
	@{ head -1 constraints.txt; $(BIN)/python -m pip list --format=freeze --exclude idleband --exclude pip --exclude setuptools; } > constraints.new
	mv constraints.new constraints.txt

clean:  ## remove what was built and installed
	rm -rf $(VENV) dist build results site
