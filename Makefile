# `make demo` and `make test` need Python >= 3.11 (with venv) and Java >= 17, and set up everything else themselves.
# Set-up lives in .venv and build/; what it prints is one line per step that really runs.

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(abspath $(BIN)/python)

# The first Python that is new enough. `make PYTHON=/path/to/python3.12 ...` decides otherwise.
PYTHON ?= $(shell for p in python3 python python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# The package is a farm of links to these files (strict editable mode), so a *new* file needs new links; a changed one
# does not, unless it is C and has to be compiled. Hence the names go into the stamp, and of C the contents, too. Of
# pyproject.toml the content counts, not its time, and the directory counts because links and .venv hold absolute paths.
FOLDERS := connector coordinator offsets stores testing tools wire
SOURCES := $(sort $(foreach d,$(FOLDERS),$(wildcard $(d)/*.py $(d)/*/*.py $(d)/*/*.[ch] $(d)/py.typed)))
DEPENDENCIES_KEY := $(firstword $(shell { echo '$(CURDIR)'; cat pyproject.toml; } | cksum))
LINKS_KEY        := $(firstword $(shell { echo $(DEPENDENCIES_KEY) $(SOURCES); cat connector/columns/*.[ch]; } | cksum))
DEPENDENCIES := $(VENV)/.dependencies-$(DEPENDENCIES_KEY)
READY        := $(VENV)/.links-$(LINKS_KEY)
ZIG          := $(VENV)/.zig-$(DEPENDENCIES_KEY)

# Spark starts its Python workers, and so our source, with PYSPARK_PYTHON: never leave that to the user's shell.
# The others would put another Spark, or other modules, in front of the ones installed here.
export PYSPARK_PYTHON := $(PY)
export PYSPARK_DRIVER_PYTHON := $(PY)
export SPARK_LOCAL_IP ?= 127.0.0.1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME

EDITABLE := --config-settings editable_mode=strict
PYTEST   := $(PY) -m pytest
# Two run side by side: one takes the first half and one the second, so that files stay together, until one has nothing
# left. ARGS="-n0" runs one after the other, in this process.
PARALLEL := -n 2 --dist worksteal
# These wait much of the time, so four share two cores; each worker has brokers and a Spark of its own. Each takes a whole
# file, so that what it sets up is set up once, and long ones first: integration/order.py.
PARALLEL_FILES := -n 4 --dist loadfile --no-loadscope-reorder
# mypy finds the package where Python does, in the link farm; print the paths that people edit.
mypy      = found=$$($(PY) -m mypy --no-error-summary $(1) 2>&1) || { printf '%s\n' "$$found" | sed -E \
	-e 's,^build/__editable__[^/]*/pyspark_kafka_group/(coordinator|offsets|stores|testing|tools|wire)/,\1/,' \
	-e 's,^build/__editable__[^/]*/pyspark_kafka_group/,connector/,'; exit 1; }
CODE     := $(wildcard $(FOLDERS) tests integration examples benchmarks scripts)
TYPED    := $(wildcard tests integration examples benchmarks)

.PHONY: help setup demo demo-cluster test lint types fast integration sanitize simulate soak rebalances compatibility bench wheels format clean java
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:  ## This list
	@echo 'make demo          the whole thing on a real local Kafka, about two minutes (ARGS="--help" lists its options)'
	@echo 'make demo-cluster  the same on a standalone Spark cluster, one worker of which is killed; about two minutes'
	@echo 'make test          lint, types, fast tests, integration tests on a real local Kafka'
	@echo 'make lint          ruff: rules and formatting'
	@echo 'make types         mypy --strict over package, tests and examples'
	@echo 'make fast          tests/: no broker but an in-process mock (ARGS="-k name" goes to pytest)'
	@echo 'make integration   integration/: real Kafka, real Spark (ARGS="-k name" goes to pytest)'
	@echo 'make sanitize      random messages and Avro through the C code, under the sanitizers (ARGS=rounds)'
	@echo 'make simulate      millions of simulated schedules, and small worlds exhaustively (ARGS="--mutants" lists what is caught)'
	@echo 'make soak          30 minutes of real applications under faults, then a report (ARGS="--help" lists its options)'
	@echo 'make rebalances    100 planned rebalances, and how long each takes (ARGS="--help" lists its options)'
	@echo 'make compatibility the main paths with other versions of Kafka, PySpark and confluent-kafka (ARGS="--help" lists them)'
	@echo 'make bench         ARGS="throughput", or another benchmark beside the built-in source (ARGS="--help" lists them)'
	@echo 'make wheels        dist/: the sdist and a wheel for each platform, checked (100 MB to download at first)'
	@echo 'make setup         only .venv, which the others set up by themselves'
	@echo 'make format        let ruff repair what it can'
	@echo 'make clean         remove .venv, build/ and caches (downloaded broker jars stay in your user cache)'

setup: $(READY)

demo: $(READY)
	@$(PY) examples/orders/demo.py $(ARGS)

demo-cluster: $(READY)
	@$(PY) examples/orders/demo.py --cluster $(ARGS)

test: lint types fast integration

lint: $(READY)
	@echo '== lint'
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --quiet --check $(CODE) || { echo 'Run: make format'; exit 1; }

types: $(READY)
	@echo '== types'
	@$(call mypy,--package pyspark_kafka_group)
	@$(call mypy,$(TYPED))

fast: $(READY)
	@echo '== fast tests'
	@$(PYTEST) tests $(PARALLEL) $(ARGS)

integration: $(READY)
	@echo '== integration tests'
	@$(PY) -m integration.java_start || echo 'Without these archives: everything works, and takes longer.'
	@$(PYTEST) integration $(PARALLEL_FILES) $(ARGS)

sanitize:
	@scripts/sanitize-native.sh $(or $(ARGS),1000000)

simulate: $(READY)
	@$(PY) -m tests.simulation --schedules 2000000 --deeper 2 $(ARGS)

soak: $(READY)
	@$(PY) -m integration.soak $(ARGS)

rebalances: $(READY)
	@$(PY) -m integration.rebalances $(ARGS)

compatibility: $(READY)
	@$(PY) -m integration.compatibility $(ARGS)
	@$(PY) scripts/render_docs.py

bench: $(READY)
	@$(PY) -m benchmarks $(or $(ARGS),--help)

wheels: $(READY) $(ZIG)
	@$(PY) scripts/build_wheels.py
	@scripts/try-wheel.sh

format: $(READY)
	@$(BIN)/ruff check --quiet --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

clean:
	@rm -rf $(VENV) build dist *.egg-info connector/columns/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Deliberate: Java is asked for before any download, by every goal, so that nobody waits for pip to learn of it.
java:
	@scripts/check-java.sh

$(DEPENDENCIES): | java
	@PYTHON='$(PYTHON)' scripts/check-python.sh
	@test -d $(VENV) && echo 'Updating $(VENV) ...' || \
		echo 'Setting up $(VENV) with $(PYTHON): a minute or two, about 500 MB to download ...'
	@rm -f $(VENV)/.dependencies-* $(VENV)/.links-*
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --editable '.[dev]' $(EDITABLE)
	@touch $(DEPENDENCIES) $(READY)

$(READY): $(DEPENDENCIES) | java
	@test -e $(READY) || { echo 'Linking new files into $(VENV) ...' && rm -f $(VENV)/.links-* && \
		$(PY) -m pip install --quiet --no-build-isolation --no-deps --editable . $(EDITABLE) && touch $(READY); }

$(ZIG): | $(READY)
	@echo 'Installing zig, a compiler for all platforms: about 100 MB to download ...'
	@$(PY) -m pip install --quiet --no-build-isolation --editable '.[wheels]' $(EDITABLE)
	@touch $(ZIG)
