# `make demo` trains a real model on real Spark executors; `make test` checks everything. Both do all the set-up in .venv.
.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-spark test-slow test-all test-matrix lint format bench clean java venv-demo venv-dev yarn-up yarn-down
.NOTPARALLEL:

# Another activated virtual environment, pip's own settings or another Spark must not reach into .venv.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV __PYVENV_LAUNCHER__ PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON

# Modules rather than scripts: a script in .venv/bin names the folder that it was installed in.
PYTHON_HERE := .venv/bin/python
PYTEST := $(PYTHON_HERE) -m pytest

help:
	@echo "make demo        set up .venv and train the digits model on two Spark executors"
	@echo "make test        set up .venv; ruff, mypy, tests of the unit and spark tiers"
	@echo "make test-unit   tests that need no Spark (seconds)"
	@echo "make test-spark  tests on real Spark executors (minutes)"
	@echo "make test-slow   fault injection and other long tests"
	@echo "make test-all    all of these"
	@echo "make test-matrix the oldest and the newest pair of Spark and TensorFlow, each in an environment of its own"
	@echo "make lint        ruff and mypy;   make format  ruff's fixes"
	@echo "make bench       every benchmark (most of an hour), against Spark alone and TensorFlowOnSpark 2.2.5; ONLY=feed,control for a part"
	@echo "make yarn-up     a YARN on this machine to try things on (Hadoop from Maven);   make yarn-down  ends it"
	@echo "make clean       remove .venv, caches and the demo's model (records of runs are in ~/.tfos)"

demo: java venv-demo
	$(PYTHON_HERE) -m tfos_cli train jobspecs/digits_spark.yaml

test: java lint venv-dev
	$(PYTEST) -m "not slow" tests/unit tests/spark

test-unit: venv-dev
	$(PYTEST) tests/unit

test-spark: java venv-dev
	$(PYTEST) tests/spark

test-slow: java venv-dev
	$(PYTEST) -m slow tests/spark tests/slow

test-all: java lint venv-dev
	$(PYTEST) tests

test-matrix: java
	.ci/matrix oldest
	.ci/matrix newest

lint: venv-dev
	$(PYTHON_HERE) -m ruff check .
	$(PYTHON_HERE) -m ruff format --check .
	$(PYTHON_HERE) -m mypy

format: venv-dev
	$(PYTHON_HERE) -m ruff check --fix .
	$(PYTHON_HERE) -m ruff format .

# ONLY=feed/tuple10,control runs a part; of the other parts the newest results stay.
bench: java venv-dev
	$(PYTHON_HERE) -m pip install --quiet --no-input --disable-pip-version-check --constraint constraints.txt --editable ".[dev,bench]"
	$(PYTHON_HERE) benchmarks/all.py $(if $(ONLY),--only $(ONLY))

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis jobspecs/models jobspecs/predictions spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

yarn-up: java venv-dev
	PYTHONPATH=tests $(PYTHON_HERE) -m testbed.yarn up

yarn-down:
	PYTHONPATH=tests $(PYTHON_HERE) -m testbed.yarn down

java:
	@.ci/java

venv-demo:
	@.ci/venv demo

venv-dev:
	@.ci/venv dev
