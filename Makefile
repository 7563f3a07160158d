# Two commands do everything on a fresh machine with Python 3.11+: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-long lint format bench docs setup clean

demo: $(READY)  ## fit all four regressors on embedded data; writes demo/
	$(BIN)/gdkl demo --output demo

# Coverage is measured by test-long: counting lines takes 30 % more time.
test: lint  ## every check: format, lint, types, layers, tests
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m "not long"

test-long: $(READY)  ## every test with full counts, those that `make test` leaves out, and coverage
	OPENBLAS_NUM_THREADS=1 HYPOTHESIS_PROFILE=long $(BIN)/pytest -n auto --dist worksteal --cov --cov-report=term

lint: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## the documentation site, examples run; docs/_build/html/index.html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: $(READY)  ## every benchmark; each prints a ratio against its alternative
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

setup: $(READY)

# Set-up happens once and again only when the requirements change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "gdkl needs Python 3.11 or newer, and $(PYTHON) is %d.%d: run make PYTHON=python3.12 ..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs]"
	@touch $@

clean:
	rm -rf $(VENV) demo runs docs/_build docs/api/generated docs/examples .pytest_cache .ruff_cache .hypothesis
