# Everything a developer types. Needs make and a Python 3.11 or newer with venv; the rest comes from the package index.
# `make bench` also uses Java, Maven and Go where they are found.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# A found name is not enough: version managers leave names on the path behind which there is no Python. The system's own
# comes first: distributions optimise theirs by profile, and what a version manager compiles mostly is not.
FIND_PYTHON = for name in /usr/bin/python3.13 python3.13 /usr/bin/python3.12 python3.12 /usr/bin/python3.11 python3.11 python3; do \
	"$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$name"; exit; }; done
PYTHON ?= $(shell $(FIND_PYTHON))

# Arguments for the program behind a target: make serve ARGS="--port 9092", make bench ARGS="--quick --only produce".
ARGS ?=
# Test processes; 0 runs the tests in this one, which a debugger wants.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -gt 4 ] && echo 4 || echo "$$n")
FUZZ_EXAMPLES ?= 2000
SEED ?=
SEEDS ?=
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup test check format docs demo bench clients serve fuzz sim chaos clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## a virtual environment in .venv with everything pinned in constraints.txt
	@# Where the environment keeps Python from caching, each start would compile everything anew.
	@$(BIN)/python -m compileall -q -j 0 src

# What is compiled (hatch_build.py), where there is a compiler.
COMPILED := hatch_build.py $(shell find src -name '*.pyx' -o -name '*.pxd')

$(READY): pyproject.toml constraints.txt $(COMPILED)
	@[ -n "$(PYTHON)" ] || { echo "Ottla needs Python 3.11 or newer with venv; none was found (say which: make PYTHON=...)" >&2; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV) with $$($(BIN)/python --version)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt hatchling editables setuptools wheel Cython
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,spark]'
	@touch $@

test: check ## every check and every test
	@$(BIN)/python -m bench.tools
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --ignore tests/tidy $(ARGS)

check: setup ## lint, format, types, and the rules of the house (tests/tidy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict hatch_build.py src bench simulator chaos demo tests/tidy tests/bench tests/demo tests/simulator
	$(BIN)/python -m pytest -q tests/tidy

format: setup ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## pages that are made from the code
	$(BIN)/python -m ottla.api.support_page docs/protocol-support.md
	$(BIN)/python -m ottla.api.config_page docs/configs.md

demo: setup ## three brokers, Spark exactly once, a broker killed; compares, draws, ends by itself
	@$(BIN)/python -m demo $(ARGS)

bench: setup ## beside Apache Kafka; writes docs/benchmarks.md, fails when a floor does
	$(BIN)/python -m bench $(ARGS)

clients: setup ## kafka-python's own integration tests, which are fetched, against a broker
	$(BIN)/python -m tests.clients.kafka_python_suite $(ARGS)

serve: setup ## a broker on 127.0.0.1:9092 with its data in ./data
	$(BIN)/ottla serve --data data $(ARGS)

fuzz: setup ## many hostile inputs where `make test` tries a few
	HYPOTHESIS_PROFILE=fuzz OTTLA_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -n $(JOBS) -m fuzz --timeout 1800 $(ARGS)

sim: setup ## simulated clusters under faults: SEED=n for one, SEEDS=n for many, ARGS=--floor for 10 hours in 5 minutes
	$(BIN)/python -m simulator $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS))) $(ARGS)

chaos: setup ## three brokers, real clients and faults for SECONDS, of SEED if given; reads everything back
	$(BIN)/python -m chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

clean: ## remove what make made, the virtual environment too
	find src -name '*.so' -delete
	rm -rf $(VENV) .bench .demo .sim .hypothesis .mypy_cache .pytest_cache .ruff_cache dist build
