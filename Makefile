# Everything a newcomer types. `make help` lists the targets; each sets up what it needs by itself.
PYTHON ?= python3
BIN := .venv/bin
PEERS := $(patsubst benchmarks/peers/%/requirements.txt,.venv-peers/%/.ready,$(wildcard benchmarks/peers/*/requirements.txt))
COMPILED := $(wildcard buffer/*.c policy/algorithms/muzero/search/*.[ch])
SOAK_S ?= 1800
FUZZ_S ?= 60
TESTS ?= 4
BENCHMARKS := PYTHONPATH=$(CURDIR)/.typing $(BIN)/python -m remuda.benchmarks
# Tests start processes, each of which would compile all that it imports; CI images often say so.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo test page cluster cluster-quick ray faults security audit learning sinks buckets bench bench-learning bench-peers examples gpu soak suites effective docs site lint types mypy pyright unit collected-unit clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .venv/.ready  ## make .venv with pinned versions (does nothing the second time)

# pip would compile every module of every package, nine of ten of which nobody imports: the first import compiles it.
# What every process of Remuda's imports is imported once here, and not by all of them at the same time.
.venv/.ready: pyproject.toml constraints.txt setup.py $(COMPILED)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Remuda needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,plot,search,datasets,atari,box2d,mujoco,video,pettingzoo,league]'
	$(BIN)/python -P -c 'import remuda.cli.train, remuda.runner.serial'
	touch $@

demo: setup  ## train CartPole with a coordinator and a herd of workers, live, to a return of 475
	$(BIN)/remuda launch examples/cartpole_dqn.yaml --on-exists rename

test: lint  ## lint, types and every test (about ten minutes on two quiet cores)
	$(MAKE) --no-print-directory -j 3 mypy pyright collected-unit

lint: setup  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy strict and pyright strict, both at once
	$(MAKE) --no-print-directory -j 2 mypy pyright

mypy: setup  ## mypy strict, of everything
	$(BIN)/mypy

pyright: setup  ## pyright strict, of all but the tests
	$(BIN)/pyright

unit: setup  ## the tests alone, four at a time (many wait for processes; TESTS=2 for two)
	$(BIN)/pytest -n $(TESTS) --dist loadgroup

# The assertions of all tests are rewritten once, instead of once by each process that runs tests. These begin while the
# types are still being checked.
collected-unit: setup
	@$(BIN)/pytest --collect-only -q > /dev/null || true
	$(MAKE) --no-print-directory unit

faults: setup  ## the faults of docs/promises.md in their long form: schedules, then real processes (an hour and a half)
	REMUDA_FAULTS=long $(BIN)/pytest tests/coordinator tests/runner/test_resume.py tests/runner/test_several_policies.py tests/runner/test_tasks.py \
		-m "faults_long or not learning" -n 2 -rP -o faulthandler_timeout=7200 -o timeout=7200
	REMUDA_FAULTS=long REMUDA_FAULTS_SOAK_S=$(SOAK_S) \
		$(BIN)/pytest tests/faults -m "not learning" -s -o faulthandler_timeout=7200 -o timeout=7200

cluster: setup ray  ## real runs on a real Slurm and a real Ray of several nodes on this machine (ten minutes; docs/cluster.md says what it needs)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,cluster]"
	$(BIN)/pytest tests/cluster -m cluster -rs

cluster-quick: setup  ## of these, a run on Slurm to its end and one whose coordinator is requeued (a minute)
	$(BIN)/pytest tests/cluster/test_slurm.py -m cluster -rs -k "to_its_end or requeued or mistake"

# Where it cannot be installed, its tests are skipped and say so.
ray: setup
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'remuda[ray]'

page: setup  ## the page in a real headless browser, Chromium, over real runs (some minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,page,video]'
	$(BIN)/pytest tests/page/browser -m browser -n 0 -rs

security: setup  ## what others may send or put in a folder, in its long form: a million mutated messages, and atheris at every decoder (half an hour)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,security]'
	REMUDA_SECURITY=long $(BIN)/pytest tests/security -m processes -n 0 -rP -o faulthandler_timeout=7200 -o timeout=7200
	REMUDA_SECURITY=long $(BIN)/pytest tests/security -m "not processes" -n 2 -rP -o faulthandler_timeout=7200 -o timeout=7200
	PYTHONPATH=$(CURDIR)/.typing $(BIN)/python -m remuda.tests.security.fuzz --seconds $(FUZZ_S) --jobs 2

audit: setup  ## known weaknesses of the installed packages, by pip-audit (asks pypi.org)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,security]'
	@$(BIN)/pip-audit --skip-editable --strict || { echo 'make audit: not clean. Where a line above says "could not be audited", pypi.org was not reached or does not know that version, and nothing is known of it; else the table above lists what was found.' >&2; exit 1; }

learning: setup  ## the demo's config solves CartPole for 9 of 10 seeds, in both modes, and the other examples (about an hour)
	$(BIN)/pytest tests/learning -m learning -s -o faulthandler_timeout=6000

sinks: setup  ## Weights & Biases and MLflow into .venv, and the tests that need them (offline)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,wandb,mlflow]'
	$(BIN)/pytest tests/logbook/test_trackers.py

suites: setup  ## bsuite, MinAtar, POPGym and Minigrid into .venv, and the tests that need them
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,suites]'
	$(BIN)/pytest tests/environments/test_dm_env.py tests/benchmarks/test_suites.py -rs

buckets: setup  ## s3fs and an S3 server into .venv, and the tests that need them (with every role killed: ten minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bucket,s3-server]'
	$(BIN)/pytest tests/parallel/test_bucket.py -m "faults_long or processes" -rs

bench: setup  ## measure every figure beside the machine's raw limits (minutes; see benchmarks/README.md)
	$(BENCHMARKS)

# torch is the machine's own where it has one: another would be gigabytes. pip asks no index where PIP_NO_INDEX and
# PIP_FIND_LINKS say so.
gpu: .venv-gpu/.ready  ## on a machine with a GPU: every algorithm beside the CPU and plain torch, runs beside LeanRL's, a Pong (eight minutes)
	PYTHONPATH=$(CURDIR)/.typing .venv-gpu/bin/python -m remuda.benchmarks.gpu

.venv-gpu/.ready: pyproject.toml setup.py $(COMPILED)
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv --system-site-packages .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -e '.[atari,mujoco]'
	touch $@

soak: setup  ## half an hour of training: does it keep its pace and its memory?
	REMUDA_SOAK_MINUTES=30 $(BENCHMARKS) soak

effective: setup  ## somebody is killed every minute for 20 minutes: which share of its training time does a herd keep? (half an hour)
	$(BENCHMARKS) effective_training

examples: setup  ## each config of examples/ but Pong's to its end, over seeds, with its curve (a night): docs/examples.md
	$(BENCHMARKS).learning --folder runs/examples

bench-learning: setup  ## learning curves beside stable-baselines3, by turns: all tasks take a night; see benchmarks/README.md for some of them
	-$(MAKE) .venv-peers/stable-baselines3/.ready
	$(BENCHMARKS).learning --peers

bench-peers: setup  ## install each peer in an environment of its own and measure every figure beside it (hours)
	-$(MAKE) --keep-going $(PEERS)
	$(BENCHMARKS) --peers

.venv-peers/%/.ready: benchmarks/peers/%/requirements.txt
	test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	test ! -f $(<D)/no-deps.txt || $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(<D)/no-deps.txt
	touch $@

docs: setup  ## write docs/configuration.md, docs/metrics.md and docs/examples.md again, from the code and from stored runs
	$(BIN)/remuda config schema --markdown > docs/configuration.md
	$(BIN)/python -m remuda.docs.metrics_page > docs/metrics.md
	$(BENCHMARKS).learning.page > docs/examples.md

site: setup  ## build the pages of docs/, with references of the Python API and of the messages, into site/ (installs mkdocs into .venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	rm -rf .site && mkdir -p .site/remuda
	ln -s $(CURDIR)/__init__.py $(patsubst %/__init__.py,$(CURDIR)/%,$(wildcard */__init__.py)) .site/remuda/
	$(BIN)/python -m remuda.docs.protocol_page > docs/protocol.md
	$(BIN)/mkdocs build --quiet

clean:  ## remove the virtual environments and caches (never runs/)
	rm -rf site .site .venv .venv-gpu .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz *.egg-info build buffer/*.so policy/algorithms/muzero/search/*.so
