# Every step is written in drlib/setup.py; without make: python -m drlib.setup TARGET
PYTHON ?= python3
PROFILE ?= laptop
ARGS ?=

SETUP = @$(PYTHON) -m drlib.setup

.DEFAULT_GOAL := help
.PHONY: help env book read test test-slow mutate bench lint lock clean clean-store

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "variables: PROFILE=smoke|laptop|paper  PYTHON=python3.12  ARGS='further arguments'"

book:  ## make .venv if needed, run the notebooks of PROFILE (default: laptop), build the book, print where it is
	$(SETUP) book --profile $(PROFILE) $(ARGS)

test:  ## make .venv if needed, run the test suite
	$(SETUP) test $(ARGS)

read:  ## build the book from the committed reference run, in .venv-docs, without PyTorch
	$(SETUP) read $(ARGS)

test-slow:  ## the slow tests, up to an hour (DRLIB_SHARD=1/4: a quarter of them)
	$(SETUP) test-slow $(ARGS)

mutate:  ## plant faults, each of which must turn a test red
	$(SETUP) mutate $(ARGS)

bench:  ## time drlib beside what people would use instead (ARGS=frechet: only that)
	$(SETUP) bench $(ARGS)

lint:  ## style, formatting, layers
	$(SETUP) lint $(ARGS)

env:  ## only make .venv, or bring it up to the lock
	$(SETUP) env

lock:  ## write both locks anew from pyproject.toml (ARGS=--upgrade moves versions)
	$(SETUP) lock $(ARGS)

clean:  ## delete what was built and cached; computed results and .venv stay
	$(SETUP) clean

clean-store:  ## delete the computed results too
	$(SETUP) clean-store
