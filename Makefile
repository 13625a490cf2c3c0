# `make run` and `make test` each do all their own set-up on a fresh machine with Python 3.10 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
PROCESSES ?= 2
OPTIONS ?=
# Most lines that the package may have: whoever adds takes away. Steps on columns, sessions, the one command, and then the
# door to a running job with its page, metrics and history have moved in, and nothing as large has moved out yet.
MOST_LINES := 65973

# What the version of Python has no part in: experiments, pictures and pages, arithmetic, and walks over random faults.
SAME := experiments door/test_page.py report/test_report_plan_picture.py report/test_report_screens.py balance \
	measure placement routing/test_groupings_conformance.py routing/test_groupings_exactness.py \
	test_aggregates.py jobs/test_topologies.py spark/test_bags.py \
	checkpoints/test_crashes.py checkpoints/test_s3.py config/test_fuzzed_job_files.py \
	execution/test_spilled_memory.py sinks/test_kafka_topics.py

# A job has many processes: what one of them has compiled the next need not, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-python unit coverage lint lock dist docs clean
.DEFAULT_GOAL := run

run: $(READY)  ## run the main job and show its result
	$(BIN)/python -m dpa.run configs/wordcount.yaml --report out/report

test: $(READY)  ## run all tests, in two processes (PROCESSES=2); those on Ray and Spark first, as they take longest
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder --durations=25

test-python: export HYPOTHESIS_PROFILE := few
test-python:  ## run most unit tests on another Python, in an environment of its own: make test-python PYTHON=python3.13
	$(MAKE) unit VENV=$(VENV)-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
		PROCESSES=0 OPTIONS="$(SAME:%=--ignore=tests/unit/%)"

unit: $(INSTALLED)  ## run the unit tests
	$(BIN)/python -m pytest tests/unit --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder $(OPTIONS)

coverage: $(READY)  ## run all tests, which takes half as long again, and list the lines not covered
	$(BIN)/python -m pytest --cov=dpa --cov-report=term:skip-covered

lint: $(INSTALLED)  ## check style, types, layers, and the size of the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg
	@lines=$$(find dpa -name '*.py' -exec cat {} + | wc -l); echo "dpa/ has $$lines lines, of at most $(MOST_LINES)"; \
		test $$lines -le $(MOST_LINES)

$(INSTALLED): requirements.lock setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "dpa needs Python 3.10 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	@# The lock names all that is needed. uv installs it in a fraction of pip's time, and pip does where uv cannot. Modules
	@# are compiled when they are first imported, which most never are; those of every process of a job here, or all the
	@# processes of the first job would, side by side.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps uv \
		&& $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -r requirements.lock \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements.lock
	@# By a path, not by a hook that finds the package: type checkers and editors follow paths alone.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .
	$(BIN)/python -c "import dpa.driver.run, dpa.report._terminal, dpa.runtime.actors.coordinator, polars_hash, pydantic.v1"
	@touch $@

$(READY): $(INSTALLED)
	@# Both work without.
	$(BIN)/python -c "import ray.dashboard.agent" || true
	$(BIN)/python -m dpa.spark.archive || true
	@touch $@

lock:  ## renew requirements.lock (needs uv)
	uv pip compile --universal --python-version 3.10 --extra test --extra experiments --extra docs --quiet \
		--no-annotate --no-header --no-emit-index-url setup.cfg -o requirements.lock

dist: $(INSTALLED)  ## build sdist and wheel into dist/, and use the wheel in an empty environment of each Python
	rm -rf dist
	$(BIN)/python -m build --no-isolation > dist.log 2>&1 || { cat dist.log; exit 1; }
	rm dist.log
	$(BIN)/python .ci/installed.py

docs: $(INSTALLED)  ## build the site into build/site: the pages, search, and a reference of Python; a warning is an error
	$(BIN)/sphinx-build --quiet -W --keep-going -c docs/site -d build/doctrees . build/site

clean:  ## remove what was installed and made
	rm -rf $(VENV) $(VENV)-3.* out build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
