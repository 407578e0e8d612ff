# Needs Python >= 3.11 (with venv) and Java >= 17, and sets up everything else in .venv and build/.
# ARGS="..." goes to the program that a target runs: ARGS="--help", or ARGS="-k name -n0" to pytest.

VENV := .venv
PY   := $(abspath $(VENV)/bin/python)
# The name has the folder in it: a copy of .venv would still lead to the sources it was copied from.
READY := $(VENV)/.ready$(subst /,-,$(CURDIR))

# The first Python that is new enough. `make PYTHON=/path/to/python3.12 ...` decides otherwise.
PYTHON ?= $(shell for p in python3 python python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# Spark starts its Python workers, and so our source, with PYSPARK_PYTHON: never leave that to the user's shell.
# The others would put another Spark, or other modules, in front of the ones installed here.
export PYSPARK_PYTHON := $(PY)
export PYSPARK_DRIVER_PYTHON := $(PY)
export SPARK_LOCAL_IP ?= 127.0.0.1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS
# Images of containers often set it. Then each process would compile all that it imports, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# The address of the repository, in the links of what `make wheels` builds. The release workflow sets it; put yours here
# to release from another machine: docs/releasing.md.
REPOSITORY ?=

# Other versions to test with, for a new .venv: VERSIONS="pyspark==4.2.0 confluent-kafka==2.15.0".
VERSIONS ?=

# What `make proof` runs, and the seed of all that is random in it.
PARTS ?= schedules soak sanitizers versions benchmarks wheels
SEED ?= $(shell date +%s)

# Says what it runs, and how long it took: $(PART) 'what' command.
PART := @scripts/part.sh
BEGAN := $(shell date +%s)
MINUTES = $$((($$(date +%s) - $(BEGAN)) / 60)):$$(printf %02d $$((($$(date +%s) - $(BEGAN)) % 60))) min

# Two workers begin with half of the tests each, so that files stay together, until one has nothing left.
FAST := $(PY) -m pytest tests -n 2 --dist worksteal
# What pytest remembers of them, and the mark that they have passed, stand beside what it remembers of the others.
FAST_CACHE := .pytest_cache/fast
# These wait much of the time, so three workers share two cores. With four, a test takes two to four times as long as alone,
# and the tests together take longer than with two. Each worker has brokers and a Spark of its own and takes whole
# files, so that what a file sets up is set up once. Long files begin first: integration/order.py.
INTEGRATION := $(PY) -m pytest integration -n 3 --dist loadfile --no-loadscope-reorder
# Of these, `test` runs the ones with several applications and the main paths. An empty KAFKA_VERSION is the newest.
APPLICATIONS := integration/test_exactly_once.py 'integration/test_faults.py::test_nothing_is_lost_and_twice_is_only_what_was_declared[consumer]'
PROMISES := $(PY) -m pytest $(APPLICATIONS) integration/test_main_paths.py -n 3 --dist loadgroup --no-loadscope-reorder

MAKEFLAGS += --no-print-directory
.PHONY: help setup demo demo-cluster test test-all proof $(PARTS:%=proof-%) lint types fast integration archives sanitize simulate faults soak \
	rebalances compatibility bench bench-check docs wheels format clean java
.NOTPARALLEL:

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## .venv, which the others set up by themselves
demo: $(READY)  ## the whole thing on a real local Kafka, about two minutes
	@$(PY) examples/orders/demo.py $(ARGS)
demo-cluster: $(READY)  ## the same on a standalone Spark cluster, one worker of which is killed; about two minutes
	@$(PY) examples/orders/demo.py --cluster $(ARGS)

test: $(READY)  ## each change: fast tests, then the main promises on a real local Kafka, under both protocols
	@rm -rf $(FAST_CACHE)
	@scripts/side-by-side.sh \
		"scripts/part.sh 'fast tests: all of tests/, without a broker' $(FAST) -o cache_dir=$(FAST_CACHE) && touch $(FAST_CACHE)/passed" \
		"KAFKA_VERSION=$(KAFKA_VERSION) scripts/part.sh 'the main promises, on a real Kafka and a real Spark' $(PROMISES)"
	@echo "Proved in $(MINUTES): the rules, by all fast tests; and on a real Kafka, under both protocols, that queries" \
		"share a group, survive kills and restarts, lose no record, and name each one that comes twice."
test-all: lint types docs archives test  ## each merge, through .ci/run: all checks and all tests
	$(PART) '20,000 simulated schedules, and small worlds' $(PY) -m tests.simulation --seed 2000 --schedules 20000
	$(PART) 'all other integration tests' $(INTEGRATION) $(APPLICATIONS:%=--deselect %)
	@echo "Proved in $(MINUTES): every promise that a test of this project knows, with these versions."
proof: $(PARTS:%=proof-%)  ## each night, and before a release: hours (PARTS="soak wheels" selects, SEED=7 repeats)
	@echo "Proved in $(MINUTES) with seed $(SEED): $(PARTS)."
proof-schedules:
	$(PART) 'a million schedules from seed $(SEED)' $(MAKE) simulate ARGS='--schedules 1000000 --seed $(SEED)'
proof-soak:
	$(PART) 'an hour of faults, seed $(SEED)' $(MAKE) soak ARGS='--minutes 60 --brokers 3 --proxied --coordinator-away 10 --seed $(SEED)'
proof-sanitizers:
	$(PART) 'a million rounds of each fuzzer from seed $(SEED)' $(MAKE) sanitize ARGS='1000000 $(SEED)'
proof-versions: $(READY)
	$(PART) 'other versions of Spark, Kafka and Python' $(PY) -m integration.compatibility --no-record
proof-benchmarks:
	$(PART) 'benchmarks with bounds' $(MAKE) bench-check
proof-wheels:
	$(PART) 'the sdist and all wheels' $(MAKE) wheels
lint: $(READY)  ## ruff: rules and formatting
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --quiet --check || { echo 'Run: make format'; exit 1; }
types: $(READY)  ## mypy --strict over package, tests and examples
	$(PART) 'mypy --strict' $(PY) -m mypy --no-error-summary src tests integration examples benchmarks
fast: $(READY)  ## all of tests/: no broker but an in-process mock
	@$(FAST) $(ARGS)
integration: archives  ## all of integration/: real Kafka, real Spark
	@$(INTEGRATION) $(ARGS)
archives: $(READY)
	@$(PY) -m integration.java_start || echo 'Without these archives: everything works, and takes longer.'

sanitize:  ## random record batches, Avro and Protobuf through the C code, under the sanitizers (ARGS="rounds first")
	@scripts/sanitize-native.sh $(or $(ARGS),1000000)
simulate: $(READY)  ## millions of simulated schedules, and small worlds exhaustively (ARGS="--mutants" lists what is caught)
	@$(PY) -m tests.simulation --schedules 2000000 --deeper 2 $(ARGS)
faults: $(READY)  ## small faults in a copy of the project: a fast test must notice each (ARGS="--only stores/")
	@$(PY) -m tests.faults $(ARGS)
soak: $(READY)  ## 30 minutes of real applications under faults, then a report
	@$(PY) -m integration.soak $(ARGS)
rebalances: $(READY)  ## 100 planned rebalances, and how long each takes
	@$(PY) -m integration.rebalances $(ARGS)
compatibility: $(READY)  ## the main paths with other versions of Kafka, PySpark and confluent-kafka
	@$(PY) -m integration.compatibility $(ARGS)
	@$(PY) scripts/render_docs.py
bench: $(READY)  ## ARGS="throughput", or another benchmark beside the built-in source (ARGS="--help" lists them)
	@$(PY) -m benchmarks $(or $(ARGS),--help)
bench-check: $(READY)  ## short benchmarks, about 25 minutes on an idle machine: fails if a ratio misses its bound
	@$(PY) -m benchmarks check $(ARGS)
docs: $(READY)  ## build/site: the pages of docs/ as a site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs --quiet build
wheels: $(READY)  ## dist/: the sdist and a wheel for each platform, checked (100 MB to download at first)
	@$(PY) -m pip install --quiet --no-build-isolation --editable '.[wheels]'
	@REPOSITORY='$(REPOSITORY)' $(PY) -m scripts.build_wheels
	@$(PY) -m twine check --strict dist/*
	@scripts/try-wheel.sh

format: $(READY)  ## let ruff repair what it can
	@$(PY) -m ruff check --quiet --fix
	@$(PY) -m ruff format
clean:  ## remove .venv, build/ and caches (downloaded broker jars stay in your user cache)
	@rm -rf $(VENV) build dist src/*.egg-info connector/*/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +

# Every target asks for Java before any download, so that nobody waits for pip to learn of it.
java:
	@scripts/check-java.sh

# Python code is found through links, new files included. C has to be compiled. Without pyspark.zip, which has no byte code,
# Spark's Python processes import PySpark from this environment, which takes a third of the time: docs/tuning.md.
$(READY): pyproject.toml $(wildcard connector/*/*.[ch] connector/*/*/*.[ch]) | java
	@PYTHON='$(PYTHON)' scripts/check-python.sh
	@test -d $(VENV) && echo 'Updating $(VENV) ...' || \
		echo 'Setting up $(VENV) with $(PYTHON): a minute or two, about 500 MB to download ...'
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet 'setuptools>=77'
	@$(PY) -m pip install --quiet --no-compile --no-build-isolation --editable '.[dev]' $(VERSIONS)
	@$(PY) -c 'import pathlib, pyspark; pathlib.Path(pyspark.__path__[0], "python/lib/pyspark.zip").unlink(missing_ok=True)'
	@echo "Set up in $(MINUTES)"
	@touch $@
