# Everything here sets itself up: virtual environments, a container engine when none answers, an embedded PostgreSQL.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
STACK := $(PY) -m development
# Where it is set, as in many images, each of the hundreds of processes of a test run would compile all of our modules.
unexport PYTHONDONTWRITEBYTECODE
# With one that ssh has brought along, and that this system lacks, no PostgreSQL is made.
export LC_ALL := C.UTF-8

.PHONY: help setup demo test test-all test-unit test-nightly test-trainers test-kernelbot gpu gpu-host chaos fuzz lint format bench package release up down env clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: ## the two virtual environments (daemon and evaluation); every other target does this first
	@.ci/setup

demo: setup ## real submissions through real containers to a leaderboard and its page; leaves nothing running
	@$(STACK) demo

# In four processes: most tests wait for a time limit, a lease or a container, not for a core.
PARALLEL := -n 4 --dist loadscope --no-loadscope-reorder

# Of attacks, escapes, solutions and the like one of each class (tests/tiers.toml); CORPORA="attacks escapes" plays those whole.
test: setup ## every defence once; ARGS="path -k word" runs some, one after the other
	@$(STACK) run -- $(PY) -m pytest $(or $(ARGS),--tier quick --corpora "$(CORPORA)" $(PARALLEL))

test-all: setup ## every test that needs no GPU, every attack and every escape; about half an hour on two cores
	@$(STACK) run -- $(PY) -m pytest $(PARALLEL)

test-unit: setup ## the tests that need no engine, no database and no process of their own; about a minute on two cores
	@$(PY) -m pytest -n 2 tests/unit

test-nightly: ## templates compiled for devices that are not here, and the pages in a browser; about ten minutes on two cores
	@.ci/setup compile
	@$(PY) -m pytest -n 2 -m nightly $(or $(ARGS),tests)

test-trainers: setup ## the adapters in the real packages of TRL, verl and verifiers; downloads some of them first
	@.ci/setup trainers
	@$(PY) -m pytest -n0 -m nightly tests/integration/daemon/test_trainers.py

test-kernelbot: setup ## KernelBot's database and Discord bot on our queue, in a simulated Discord; KERNELBOT=DIR is its checkout, PROBLEMS=DIR one of reference-kernels
	@.ci/setup kernelbot "$(KERNELBOT)"
	@KERNEL_RUNNER_TEST_KERNELBOT="$(abspath $(KERNELBOT))" KERNEL_RUNNER_TEST_PROBLEMS="$(abspath $(PROBLEMS))" $(STACK) run -- $(PY) -m pytest -n0 -m nightly \
		tests/integration/frontends/test_kernelbot.py

gpu: ## the tests of a GPU, in layers, on a machine that has one and Python with torch and pytest; again: goes on; ARGS="DIR"
	@python3 -m tests.gpu $(or $(ARGS),build/gpu)

gpu-host: setup ## build/gpu-host: all that a bare machine with a GPU needs for `python3 -m tests.gpu.host build/plan`, in one file
	@$(PY) -m tests.gpu.host.pack $(ARGS)

chaos: setup ## minutes of everything that can break, over real daemons; prints what broke, what happened, what is wrong
	@KERNEL_RUNNER_TEST_EXAMPLES=$${KERNEL_RUNNER_TEST_EXAMPLES:-1000} $(PY) -m pytest -q -o timeout=3600 \
		tests/integration/store/test_state_machine.py tests/integration/store/test_meetings.py
	@$(PY) -m tests.chaos
	@KERNEL_RUNNER_TEST_LEAK_JOBS=$${KERNEL_RUNNER_TEST_LEAK_JOBS:-1000} $(PY) -m pytest -q tests/chaos/test_leaks.py

fuzz: setup ## random and hostile requests to every route of the gateway for an hour; FOR=600 for less
	@KERNEL_RUNNER_TEST_FUZZ_S=$(or $(FOR),3600) $(PY) -m pytest -q tests/integration/extras/gateway/test_fuzz.py

lint: setup ## ruff and mypy over everything, tests too
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: setup ## let ruff format and fix what it can
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

bench: ## the benchmarks; each prints its figures, beside what it compares itself with
	@.ci/setup bench
	@$(STACK) run -- $(PY) -m tests.benchmarks $(ARGS)

package: setup ## dist/: a Debian package, and its wheels; PYTHONS="3.11 3.12"
	@PYTHONS="$(PYTHONS)" .ci/package

release: ## build/release: wheel, source archive, Debian package, pages, checksums, all checked; says what to do by hand
	@.ci/setup release
	@.ci/release

up: setup ## PostgreSQL, engine, one daemon and the gateway in the background, for development
	@$(STACK) up

down: setup ## stop what `make up` started
	@$(STACK) down

env: ## eval "$(make -s env)" makes `kernel-runner` talk to the stack of `make up`
	@$(STACK) env

clean: ## remove the virtual environments, the caches, and the databases and engines of up, demo, test and bench
	@if [ -x $(PY) ]; then $(STACK) clean; fi
	rm -rf .venv .venv-eval .venv-trainers .venv-kernelbot .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info
