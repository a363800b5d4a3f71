# Everything starts from Python 3.11 or newer and make, and stays inside the checkout.

# The first Python here that is new enough; override with `make PYTHON=…`.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.spanmq-setup
# The distributions beside spanmq, each in its folder.
PARTS := service spark lab
CHECKED = $(wildcard src $(PARTS:%=%/src) conftest.py tests $(PARTS:%=%/tests) tools lab/bench)
SOURCES = $(CHECKED) $(wildcard examples)
# The client without async is first: commands and pages are made of its methods.
SYNC := tools/generate_sync.py
GENERATORS = $(wildcard $(SYNC)) $(filter-out $(SYNC),$(wildcard tools/generate_*.py))
# Tests wait for processes and for PostgreSQL more than they compute: two workers leave half of two cores idle.
WORKERS ?= 3
ARGS ?=
# Whatever the environment says: without bytecode each worker, and each program that a test starts, compiles all it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-deep test-sql lint fix bench bench-quick bench-simulate bench-worker bench-service soak soak-worker docs docs-serve clean
.DEFAULT_GOAL := help

help:
	@echo 'make setup        .venv with everything (first run: a minute; then: nothing to do)'
	@echo 'make demo         336,776 flights through a queue and back    (ARGS="--rows 10000")'
	@echo 'make test         what a change is likely to break, in eight minutes   (ARGS="-k lease")'
	@echo 'make test-deep    kills, all races, more random programs, simulator runs, PostgreSQL 16: 25 minutes more'
	@echo 'make test-sql     the SQL tests on a server of yours   (SERVER="host=/tmp/mine user=postgres")'
	@echo 'make lint         ruff, mypy, generated files are fresh; the docs are short, their site builds'
	@echo 'make fix          format, repair what ruff can, regenerate'
	@echo 'make bench        side by side with PGMQ, then workers, then Spark; bench-quick: three minutes; soak: an hour and a half'
	@echo 'make soak-pinned  hours under a pinned snapshot, with PGMQ beside   (ARGS="--minutes 5")'
	@echo 'make bench-worker the worker beside six peers, which it installs; soak-worker: fifty of ours killed'
	@echo 'make interleavings  the verbs of a queue, statement by statement in every order; an hour and more'
	@echo 'make bench-harness the phases of a public harness: held snapshots, readers, kills   (ARGS="--seconds 20")'
	@echo 'make bench-replay what a replay of a million messages costs beside sending them'
	@echo 'make bench-upgrade upgrades of 1,000 queues with a million messages under load'
	@echo 'make bench-service the service beside the Python client that it stands on'
	@echo 'make bench-dashboard what each page takes with 200 queues and a million messages   (ARGS="--messages 10000000")'
	@echo 'make bench-simulate  what ordered groups must reach, beside the classic polling queue'
	@echo 'make bench-pipeline  Spark beside ADBC alone and JDBC; soak-spark: two million messages, drivers killed'
	@echo 'make docs         the docs site, in build/site; docs-serve: on http://127.0.0.1:8001'
	@echo 'make release      a wheel, a source distribution and their contents (SBOM) in dist, each tried without the checkout'
	@echo 'make clean        remove everything that make made'

setup: $(STAMP)

# All distributions, which are installed together: an extra of spanmq that names another one means the one of this checkout.
EDITABLE := --editable '.[dev]' $(PARTS:%=--editable ./%)

# The stamp is older than a pyproject.toml exactly when there may be something to install. Of the fifteen thousand
# modules most are never imported: Python compiles what is, when it is, and not pip all of them beforehand.
$(STAMP): pyproject.toml $(PARTS:%=%/pyproject.toml)
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed; none found (set PYTHON=…).' >&2; exit 1; }
	@# Debian's python3 comes without ensurepip unless python3-venv is installed; a pip outside serves as well.
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
		|| $(PYTHON) -m venv --clear --without-pip $(VENV) \
		|| { echo 'This Python cannot make virtual environments (on Debian: install python3-venv).' >&2; exit 1; }
	@echo 'Installing spanmq and what it needs into $(VENV) …'
	@if $(RUN) -m pip --version >/dev/null 2>&1; then \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(EDITABLE); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		$(PYTHON) -m pip --python $(RUN) install --quiet --disable-pip-version-check --no-compile $(EDITABLE); \
	else \
		echo 'This Python has no pip (on Debian: install python3-venv).' >&2; exit 1; \
	fi
	@touch $(STAMP)

demo: setup
	$(VENV)/bin/spanmq demo --export demo-lake $(ARGS)

# What test-deep runs on PostgreSQL 18 as far as `make test` has not, and every fourth case of each test on PostgreSQL 16, where it runs the rest of
# tests/sql in full. `make test` runs every fourth case of all these tests, unless ARGS choose.
IN_FULL := $(addprefix tests/sql/,race/ model/ interleave/ conformance/ schema/) $(wildcard spark/tests/test_*.py) \
	service/tests/test_neighbours.py $(addprefix tests/tasks/,test_slow_start.py test_values.py) tests/worker/test_minority.py \
	$(addprefix service/tests/,dashboard/test_actions.py dashboard/test_scopes.py test_scopes.py) tests/client/_async/test_errors.py
SAMPLED := tests/sql/ $(filter-out tests/sql/%,$(IN_FULL))

# Killed processes, servers of their own, whole programs.
PROCESS := tests/process $(PARTS:%=%/tests/process)

# What a change is likely to break. The client without async is generated, and its tests are: they are in test-deep.
test: export SPANMQ_TEST_SAMPLED := $(if $(findstring tests/,$(ARGS))$(findstring -k,$(ARGS)),,$(SAMPLED))
test: setup
	$(RUN) -m pytest -n $(WORKERS) --dist loadgroup $(PROCESS:%=--ignore=%) --ignore=tests/sql/cost --ignore=tests/client/_sync $(ARGS)

# The oldest PostgreSQL that is supported, where Debian has it; on it too: the rights, what other roles may do to a queue, and
# the upgrade from each release.
OLDEST := /usr/lib/postgresql/15/bin
ON_OLDEST := $(addprefix tests/sql/test_,matrix.py rights.py attacks.py foreign_objects.py view_writes.py undisturbed.py follow_grants.py plpgsql_check.py) \
	tests/sql/schema/test_released.py

# What a client does every day, over a schema whose results have a column more: as of the next release.
ON_LATER := $(addprefix tests/client/_async/test_,client.py dead_letters.py deliveries.py schedules.py sending.py settled.py subscriptions.py)

# The rest: the races that `make test` leaves out, many model programs, kills, simulator, costs; then the SQL on
# PostgreSQL 16. What `make test` has run does not run again, unless it does more here, or ARGS choose.
test-deep: export SPANMQ_TEST_DEEP := 1
test-deep: setup
	SPANMQ_TEST_REST='$(if $(findstring tests/,$(ARGS))$(findstring -k,$(ARGS)),,$(IN_FULL))' $(RUN) -m pytest -n $(WORKERS) --dist loadgroup $(PROCESS) tests/client/_sync tests/sql/cost tests/sql/test_grantees.py $(IN_FULL) $(ARGS)
	SPANMQ_TEST_DEEP= SPANMQ_TEST_SAMPLED='$(IN_FULL)' SPANMQ_TEST_POSTGRES=16 $(RUN) -m pytest -n $(WORKERS) --ignore=tests/sql/cost tests/sql $(ARGS)
	SPANMQ_TEST_DEEP= SPANMQ_TEST_LATER=1 $(RUN) -m pytest -n $(WORKERS) $(ON_LATER) $(ARGS)
	test ! -x $(OLDEST)/postgres || SPANMQ_TEST_DEEP= $(RUN) tools/with_server.py $(OLDEST) $(RUN) -m pytest -n $(WORKERS) $(ON_OLDEST) $(ARGS)

# Every scene of tests/sql/interleave, in up to 400 orders of its statements: an hour and more.
.PHONY: interleavings
interleavings: setup
	$(RUN) -m tests.sql.interleave $(ARGS)

# Any version, any build: a server that nobody needs, and a role that may do everything there. CONTRIBUTING.md starts one.
SERVER := $(SPANMQ_TEST_DSN)
test-sql: export SPANMQ_TEST_DSN := $(SERVER)
test-sql: setup
	@test -n "$$SPANMQ_TEST_DSN" || { echo 'Name the server: make test-sql SERVER="host=/tmp/mine user=postgres"' >&2; exit 1; }
	@$(RUN) -c 'import os, psycopg; print(psycopg.connect(os.environ["SPANMQ_TEST_DSN"]).execute("select version()").fetchone()[0])'
	$(RUN) -m pytest -n $(WORKERS) tests/sql $(ARGS)

lint: setup
	@! grep -rnE '^.{121}' --include='*.sql' src $(PARTS:%=%/src) || { echo 'Lines of SQL have at most 120 characters.' >&2; exit 1; }
	$(RUN) -m ruff check $(SOURCES)
	$(RUN) -m ruff format --check $(SOURCES)
	$(foreach generator,$(GENERATORS),$(RUN) $(generator) --check && ) true
	$(RUN) -m mypy $(CHECKED)
	$(RUN) tools/check_docs.py --quiet
	$(VENV)/bin/zensical build --strict --clean >/dev/null || { $(VENV)/bin/zensical build --strict --clean; exit 1; }

fix: setup
	$(foreach generator,$(GENERATORS),$(RUN) $(generator) && ) true
	$(RUN) -m ruff check --fix-only $(SOURCES)
	$(RUN) -m ruff format $(SOURCES)
	$(RUN) -m ruff check $(SOURCES)

# Warnings are errors: a broken link or anchor, a page that the navigation lacks. Needs no network.
docs: setup
	$(VENV)/bin/zensical build --strict --clean

docs-serve: setup
	$(VENV)/bin/zensical serve --dev-addr 127.0.0.1:8001

# The workers' table and the pipeline's too, unless ARGS choose: they are for the first alone. All run, whatever one says.
bench: setup
	$(RUN) -m lab.bench $(ARGS) $(if $(ARGS),,; status=$$?; \
		for each in workers pipeline; do $(RUN) -m lab.bench.$$each || status=1; done; exit $$status)

bench-quick: setup
	$(RUN) -m lab.bench --quick $(ARGS)

bench-worker: setup
	$(RUN) -m lab.bench.workers $(ARGS)

# The phases of hardbyte/postgresql-job-queue-benchmarking that need no container, twenty-five minutes, with PGMQ beside.
.PHONY: bench-harness
bench-harness: setup
	$(RUN) -m lab.bench.harness $(ARGS)

.PHONY: bench-replay
bench-replay: setup
	$(RUN) -m lab.bench.replay $(ARGS)

.PHONY: bench-upgrade
bench-upgrade: setup
	$(RUN) -m lab.bench.upgrade $(ARGS)

bench-service: setup
	$(RUN) -m lab.bench.service $(ARGS)

.PHONY: bench-dashboard
bench-dashboard: setup
	$(RUN) -m lab.bench.dashboard $(ARGS)

# Fifty workers killed, where `make test-deep` kills five.
soak-worker: setup
	SPANMQ_TEST_KILLS=50 $(RUN) -m pytest --timeout 900 tests/process/worker/test_kill.py tests/process/tasks -k killed $(ARGS)

.PHONY: bench-pipeline soak-spark
bench-pipeline: setup
	$(RUN) -m lab.bench.pipeline $(ARGS)

# Every seam three times, where `make test` kills one driver at a few, and two million messages instead of three thousand;
# a seam that is passed once (what is published, or committed, stays so) once.
MESSAGES ?= 2000000
KILLS ?= 3
soak-spark: setup
	SPANMQ_TEST_MESSAGES=$(MESSAGES) SPANMQ_TEST_KILLS=$(KILLS) $(RUN) -m pytest spark/tests/process/test_kill.py spark/tests/process/test_speculation.py $(ARGS)

bench-simulate: setup
	$(RUN) -m lab.bench.simulation $(ARGS)

# Of a commit, so that what is released can be had again. ARGS="--quick" leaves out the tests of the source distribution.
.PHONY: release
release: setup
	$(RUN) tools/release.py $(ARGS)

soak: setup
	$(RUN) -m lab.bench --soak $(ARGS)

# Two hours for each of spanmq and PGMQ, with a transaction and three readers that hold old snapshots.
.PHONY: soak-pinned
soak-pinned: setup
	$(RUN) -m lab.bench.harness.pinned $(ARGS)

clean:
	rm -rf $(VENV) demo-lake build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis __pycache__
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
