# Everything a contributor or CI runs. Needs make and Python 3.11 or newer, nothing else.
#
#   make test ARGS="-k fence"      ARGS goes to the tool the target runs
#   make demo ARGS=--json          stdout holds nothing but the tool's own output
#   make setup PYTHON=python3.13   another interpreter (after `make clean`)

PYTHON ?= python3
ARGS ?=
# Test processes at once: one a core. With two a core the tests that wait for processes run into their limits.
WORKERS ?= logical
# The most seconds of a run of `make test` that the tests of one folder may take; 0 for no limit.
FOLDER_SECONDS ?= 45
# What `make test-quick` runs: rules, both stores' contract on SQLite, and the engine in one process.
QUICK = tests/domain tests/policy tests/limits tests/codec tests/providers tests/calls tests/store/conformance \
	tests/worker/engine tests/test_*.py
# The stores that `make chaos` runs on, one after the other.
STORES ?= sqlite postgres
PYTEST = .venv/bin/python -m pytest
PIP_INSTALL = .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps

# The tests start hundreds of interpreters, each of which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup install-locked install-docs demo test test-quick test-browser test-slow test-gpu simulate chaos lint format bench bench-economics bench-peers docs reference lock clean

help:
	@echo "make setup      make .venv and install what requirements/dev.lock names (any target below does it by itself)"
	@echo "make demo       a few hundred tasks, a rate limit, an outage and a killed worker, in a minute and a half"
	@echo "make test       the everyday tests, and what each folder took  ARGS=\"-k fence\"  WORKERS=2  FOLDER_SECONDS=0"
	@echo "make test-quick the rules, the contract of the store and the engine, on SQLite in one process: under 2 minutes"
	@echo "make test-browser  the pages, in Chromium"
	@echo "make simulate   1,000 seeds of the engine on virtual time, through crashes, outages and lost answers"
	@echo "make test-slow  the tests with literal times, many rows or seeds, or packages that are seldom installed"
	@echo "make test-gpu   the tests that need an NVIDIA GPU, in a minute; skipped with the reason where there is none"
	@echo "make chaos      real workers killed, stopped and cut off at random, five minutes on each store, then checked"
	@echo "make lint       ruff, mypy --strict, basedpyright over what users write, the import contract, the words"
	@echo "make format     rewrite the code with ruff"
	@echo "make bench      throughput, latency and memory, each compared with its limit"
	@echo "make bench-economics  what calls cost: above the quota, in an outage and after it  ARGS=\"--scale 1\""
	@echo "make bench-peers  the same work by other queues, for comparison  ARGS=\"--peers pgqueuer,limit --n 5000\""
	@echo "make reference  rewrite the pages of docs/reference/ that are made from docstrings, helps and schemas"
	@echo "make docs       build the documentation site into build/docs/html and check its links"
	@echo "make lock       renew requirements/*.lock from pyproject.toml (needs uv)"
	@echo "make clean      remove .venv and every cache"

setup: .venv/.ready
	@:

# Messages go to stderr, so that stdout has only a target's results. The stamp is a copy of the lock file: a lock file
# that only has a newer time (a fresh checkout, another branch and back) is not installed again.
.venv/.locked: requirements/dev.lock
	@if cmp -s requirements/dev.lock $@; then touch $@; else $(MAKE) install-locked >&2; fi

install-locked:
	@echo "setting up .venv from requirements/dev.lock (once; later runs need no network)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidegate needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": use make PYTHON=…")'
	@$(PYTHON) -m venv --clear .venv
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.lock
	@cp requirements/dev.lock .venv/.locked

.venv/.ready: pyproject.toml .venv/.locked
	@$(PIP_INSTALL) --no-build-isolation --editable . >&2
	@touch $@

demo: setup
	@.venv/bin/tidegate demo $(ARGS)

test: setup
	@$(PYTEST) -n $(WORKERS) --maxprocesses 4 --folder-seconds $(FOLDER_SECONDS) $(ARGS)

test-quick: setup
	@$(PYTEST) -n $(WORKERS) --maxprocesses 4 -k "not postgres and not process and not demo and not examples" $(QUICK) $(ARGS)

test-browser: setup
	@$(PYTEST) -m browser $(ARGS)

simulate: setup
	@PYTHONPATH=tests .venv/bin/python -m simulation --seeds 1000 $(ARGS)

test-slow: setup
	@$(PYTEST) -m "slow and not browser" --timeout 1800 $(ARGS)

test-gpu: setup
	@$(PYTEST) tests/gpu -m gpu -rs -p no:xdist $(ARGS)

chaos: setup
	@for store in $(STORES); do PYTHONPATH=tests .venv/bin/python -m chaos --store $$store $(ARGS) || exit; done

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/python tests/typing/check_types.py
	@.venv/bin/lint-imports
	@.venv/bin/python tools/words.py

reference: setup
	@.venv/bin/python -m tools.reference

format: setup
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup
	@PYTHONPATH=tests .venv/bin/python -m benchmarks $(ARGS)

bench-economics: setup
	@.venv/bin/python -m benchmarks.economics $(ARGS)

bench-peers: setup .venv-peers/.ready benchmarks/peers/node_modules/.ready
	@.venv/bin/python -m benchmarks.peers $(ARGS)

# Other queues have an environment of their own, so that their packages cannot be imported here. Some need Python 3.12.
PEERS_PYTHON ?= $(firstword $(foreach each,python3.12 python3.13 $(PYTHON),$(shell $(each) -c 'print("$(each)")' 2>/dev/null)))

.venv-peers/.ready: benchmarks/peers/requirements.txt
	@echo "setting up .venv-peers from $<" >&2
	@$(PEERS_PYTHON) -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --no-input --disable-pip-version-check -r $< >&2
	@touch $@

benchmarks/peers/node_modules/.ready: benchmarks/peers/package.json
	@mkdir -p $(@D)
	@if command -v npm >/dev/null; then \
		npm install --prefix benchmarks/peers --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel error >&2; \
	else echo "no npm here: the queues on Node are left out" >&2; fi
	@touch $@

# Sphinx has an environment of its own, so that no test and no tool can come to need what it brings.
docs: .venv-docs/.ready
	@.venv-docs/bin/python -m tools.docs_site

.venv-docs/.ready: requirements/docs.lock
	@if cmp -s $< $@; then touch $@; else $(MAKE) install-docs >&2; fi

install-docs:
	@echo "setting up .venv-docs from requirements/docs.lock"
	@$(PYTHON) -m venv --clear .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --require-hashes \
		-r requirements/docs.lock
	@cp requirements/docs.lock .venv-docs/.ready

lock:
	@uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --custom-compile-command "make lock" --quiet $(ARGS) \
		--output-file requirements/dev.lock
	@uv pip compile --group docs --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --custom-compile-command "make lock" --quiet $(ARGS) \
		--output-file requirements/docs.lock

clean:
	@rm -rf .venv .venv-docs .venv-peers benchmarks/peers/node_modules dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
