# `make demo` and `make test` need Python >= 3.11 (with venv) and Java >= 17, and set up everything else themselves.
# Set-up lives in .venv and build/. ARGS="..." goes to the program or to pytest.

VENV := .venv
PY   := $(abspath $(VENV)/bin/python)

# The first Python that is new enough. `make PYTHON=/path/to/python3.12 ...` decides otherwise.
PYTHON ?= $(shell for p in python3 python python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# The name has the folder in it: an installed package that was copied or moved would still lead to the old folder.
READY := $(VENV)/.ready$(subst /,-,$(CURDIR))

# Spark starts its Python workers, and so our source, with PYSPARK_PYTHON: never leave that to the user's shell.
# The others would put another Spark, or other modules, in front of the ones installed here.
export PYSPARK_PYTHON := $(PY)
export PYSPARK_DRIVER_PYTHON := $(PY)
export SPARK_LOCAL_IP ?= 127.0.0.1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME

# Two run side by side: one takes the first half and one the second, so that files stay together, until one has nothing
# left. ARGS="-n0" runs one after the other, in this process.
PARALLEL := -n 2 --dist worksteal
# These wait much of the time, so four share two cores; each worker has brokers and a Spark of its own. Each takes a whole
# file, so that what it sets up is set up once, and long ones first: integration/order.py.
PARALLEL_FILES := -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo demo-cluster test lint types fast integration sanitize simulate soak rebalances compatibility \
	bench wheels format clean java
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## .venv, which the others set up by themselves

demo: $(READY)  ## the whole thing on a real local Kafka, about two minutes (ARGS="--help" lists its options)
	@$(PY) examples/orders/demo.py $(ARGS)

demo-cluster: $(READY)  ## the same on a standalone Spark cluster, one worker of which is killed; about two minutes
	@$(PY) examples/orders/demo.py --cluster $(ARGS)

test: lint types fast integration  ## lint, types, fast tests, integration tests on a real local Kafka

lint: $(READY)  ## ruff: rules and formatting
	@echo '== lint'
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --quiet --check || { echo 'Run: make format'; exit 1; }

types: $(READY)  ## mypy --strict over package, tests and examples
	@echo '== types'
	@$(PY) -m mypy --no-error-summary src tests integration examples benchmarks

fast: $(READY)  ## tests/: no broker but an in-process mock
	@echo '== fast tests'
	@$(PY) -m pytest tests $(PARALLEL) $(ARGS)

integration: $(READY)  ## integration/: real Kafka, real Spark
	@echo '== integration tests'
	@$(PY) -m integration.java_start || echo 'Without these archives: everything works, and takes longer.'
	@$(PY) -m pytest integration $(PARALLEL_FILES) $(ARGS)

sanitize:  ## random messages and Avro through the C code, under the sanitizers (ARGS=rounds)
	@scripts/sanitize-native.sh $(or $(ARGS),1000000)

simulate: $(READY)  ## millions of simulated schedules, and small worlds exhaustively (ARGS="--mutants" lists what is caught)
	@$(PY) -m tests.simulation --schedules 2000000 --deeper 2 $(ARGS)

soak: $(READY)  ## 30 minutes of real applications under faults, then a report (ARGS="--help" lists its options)
	@$(PY) -m integration.soak $(ARGS)

rebalances: $(READY)  ## 100 planned rebalances, and how long each takes (ARGS="--help" lists its options)
	@$(PY) -m integration.rebalances $(ARGS)

compatibility: $(READY)  ## the main paths with other versions of Kafka, PySpark and confluent-kafka
	@$(PY) -m integration.compatibility $(ARGS)
	@$(PY) scripts/render_docs.py

bench: $(READY)  ## ARGS="throughput", or another benchmark beside the built-in source (ARGS="--help" lists them)
	@$(PY) -m benchmarks $(or $(ARGS),--help)

wheels: $(READY)  ## dist/: the sdist and a wheel for each platform, checked (100 MB to download at first)
	@$(PY) -m pip install --quiet --no-build-isolation --editable '.[wheels]'
	@$(PY) scripts/build_wheels.py
	@scripts/try-wheel.sh

format: $(READY)  ## let ruff repair what it can
	@$(PY) -m ruff check --quiet --fix
	@$(PY) -m ruff format

clean:  ## remove .venv, build/ and caches (downloaded broker jars stay in your user cache)
	@rm -rf $(VENV) build dist src/*.egg-info connector/*/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +

# Every goal asks for Java before any download, so that nobody waits for pip to learn of it.
java:
	@scripts/check-java.sh

# Python code is found through links, new files included. C has to be compiled.
$(READY): pyproject.toml $(wildcard connector/*/*.[ch] connector/*/*/*.[ch]) | java
	@PYTHON='$(PYTHON)' scripts/check-python.sh
	@test -d $(VENV) && echo 'Updating $(VENV) ...' || \
		echo 'Setting up $(VENV) with $(PYTHON): a minute or two, about 500 MB to download ...'
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet 'setuptools>=77'
	@$(PY) -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@
