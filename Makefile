# Everyday commands. Plain `make` lists them. Every command sets up .venv first, when that is needed.

VENV := .venv
PY := $(VENV)/bin/python
PHYSML := $(PY) -m physml
READY := $(VENV)/.ready
UNUSED := /(tests?|testing|_inductor|pip|setuptools|mypy|mypyc|sktime|sqlalchemy|fontTools)/

# The interpreter that .venv is made with; found by itself when left empty.
PYTHON ?=
# The paper that a bare number belongs to: `make table-4` is Table 4 of the LEM paper.
PAPER ?= lem
SEEDS ?=
RUN ?=
FORCE ?=
SMOKE ?=
PLAN ?=
JOBS ?=
MAX_HOURS ?=
YES ?=
DEVICE ?=
VERIFY ?=
# Where the runs are made: local, slurm, slurm/<site>, ray, pilot; more in ARGS: ARGS='--workers 8'.
ON ?=
# Further arguments, as they stand: for pytest (`make test ARGS='-k lem'`), scripts.bench, physml table and figure.
ARGS ?=

# Tests whose assertions pytest has rewritten are worth keeping: else every worker rewrites all of them.
unexport PYTHONDONTWRITEBYTECODE

# Tests wait for processes, servers and locks: a worker more than cores. Each more collects all tests once more.
CORES = $(shell getconf _NPROCESSORS_ONLN)
WORKERS = -n $(shell expr $(CORES) + 1) --dist worksteal

is_on = $(filter-out 0 no false off,$(strip $(1)))
is_off = $(filter 0 no false off,$(strip $(1)))
FLAGS = $(strip $(if $(SEEDS),--seeds $(SEEDS)) $(if $(call is_off,$(RUN)),--no-run) \
	$(if $(call is_on,$(FORCE)),--force) $(if $(call is_on,$(SMOKE)),--smoke) \
	$(if $(call is_on,$(PLAN)),--plan) $(if $(JOBS),--jobs $(JOBS)) \
	$(if $(MAX_HOURS),--max-hours $(MAX_HOURS)) $(if $(call is_on,$(YES)),--yes) $(if $(DEVICE),--device $(DEVICE)) \
	$(if $(VERIFY),--verify $(VERIFY)) $(if $(ON),--on $(ON)) $(ARGS))

# An editable install points at its folder: when the checkout was moved or copied, it is set up again.
MOVED := $(shell [ ! -e $(READY) ] || [ "$$(cat $(READY))" = "$$(pwd -P)" ] || echo moved)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo check test integration bounds site lint bench bench-graph bench-cells bench-bf16 gpu-check cpu-only smoke smoke-models smoke-readme tables figures doctor clean always

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z%<>-]+:.*## / {sub(/%/, "<id>", $$1); printf "  make %-14s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "Tables:  make table-4    make table-2 PAPER=cornn    make table-cornn-6    make table-5.4 (thesis)"
	@echo "Options: SEEDS=0,1,2 or SEEDS=n5  RUN=0 (render only)  FORCE=1 (train again)  PLAN=1 (what would be run)"
	@echo "         SMOKE=1 (tiny sizes, kept apart)  JOBS=2  MAX_HOURS=1.5  DEVICE=cuda  VERIFY=content  ON=slurm  PYTHON=python3.12"

setup: $(READY) ## make .venv with the tested versions; nothing to do when up to date
	@echo "$(VENV) is ready."

# Made anew when its Python does not run or an earlier installation was killed; else brought up to date in place.
# Of two at once the second waits, and finds it ready. The kernel drops the lock of a process that was killed.
# Where there is no flock (macOS), nothing is locked. pip would compile files to bytecode on one core, and all of
# them: those of UNUSED, which few or no processes import, are compiled when they are.
$(READY): pyproject.toml constraints.txt $(if $(MOVED),always)
	@exec 9> .venv.lock; \
	if command -v flock >/dev/null 2>&1 && ! flock -n 9; then \
		echo "Another make sets up $(VENV); waiting until it is done ..."; flock 9; \
	fi; \
	if [ -e $(READY) ] && [ "$$(cat $(READY))" = "$$(pwd -P)" ] && [ ! -e $(VENV)/.installing ] && \
		[ ! pyproject.toml -nt $(READY) ] && [ ! constraints.txt -nt $(READY) ]; then exit 0; fi; \
	if [ -e $(VENV)/.installing ] || ! $(PY) -m pip --version >/dev/null 2>&1; then \
		wanted='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'; found=; bare=; \
		for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
			"$$python" -c "$$wanted" >/dev/null 2>&1 || continue; \
			if "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then found=$$python; break; fi; \
			bare=$${bare:-$$python}; \
		done; \
		if [ -z "$$found" ] && [ -n "$$bare" ]; then \
			echo "$$bare cannot make virtual environments: it lacks venv or ensurepip." \
				"On Debian and Ubuntu: apt install python3-venv. Then: make setup" >&2; exit 2; \
		elif [ -z "$$found" ]; then \
			echo "physml needs Python 3.11 to 3.14; none of these runs and fits:" \
				"$(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python)." \
				"Install one, or name one: make setup PYTHON=/path/to/python3.12" >&2; exit 2; \
		fi; \
		echo "Making $(VENV) with $$found ..."; \
		"$$found" -m venv --clear $(VENV) || exit 2; \
	fi; \
	echo "Installing the packages of constraints.txt into $(VENV); the first time this takes a minute or two ..."; \
	touch $(VENV)/.installing; code=0; \
	{ $(PY) -m pip install --quiet --upgrade pip && \
		PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --no-compile -c constraints.txt -e '.[all,dev]'; } || code=$$?; \
	if [ $$code -ge 128 ]; then exit $$code; fi; rm -f $(VENV)/.installing; \
	if [ $$code -ne 0 ]; then \
		echo "pip could not install the packages (above: why). When that is mended: make setup" >&2; exit 2; \
	fi; \
	$(PY) -m compileall -q -j 0 -x '$(UNUSED)' $(VENV)/lib >/dev/null 2>&1 || true; \
	pwd -P > $(READY)

demo: $(READY) ## train LEM on FitzHugh-Nagumo with a fresh seed and print Table lem-4 with it
	@$(PY) scripts/demo.py $(if $(call is_on,$(SMOKE)),--smoke)

check: lint ## before each commit: style, types, layers, and the quick tests
	@$(PY) -m pytest --quick $(WORKERS) $(ARGS)

test: $(READY) ## run all tests, on all cores
	@$(PY) -m pytest $(WORKERS) $(ARGS)

integration: $(READY) ## install Slurm, PostgreSQL, Chromium (Debian, root), Ray, MLflow; run the tests with real servers and the wheel
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		command -v slurmctld >/dev/null || scripts/cluster/one_node_slurm.sh install; \
		[ -d /usr/lib/postgresql ] || scripts/cluster/local_postgresql.sh install; \
		command -v chromium >/dev/null || apt-get install -y -q --no-install-recommends chromium; fi
	@$(PY) -c 'import mlflow, psycopg, ray, axe_playwright_python' 2>/dev/null || $(PY) -m pip install --quiet \
		-c constraints.txt -e '.[mlflow,postgresql,ray]' playwright axe-playwright-python
	@[ -x $(VENV)/mlflow-server/bin/mlflow ] || { $(PY) -m venv $(VENV)/mlflow-server && \
		$(VENV)/mlflow-server/bin/python -m pip install --quiet mlflow==$$(sed -n 's/^mlflow-skinny==//p' constraints.txt); }
	@$(PY) -m pytest --integration tests/integration $(ARGS)

BOUNDS := .venv-bounds
# torch and what must match it, in `make bounds`: another release, where the lowest cannot be had.
TORCH ?=
TORCHES := torch torchvision torchaudio
# The extras without these.
BOUNDED := text,series,graph,pandas,search,track,site,estimators,completion,ode

bounds: $(READY) ## install the lowest versions that pyproject.toml promises into .venv-bounds; test with them
	@$(PY) -m venv --clear $(BOUNDS)
	@$(PY) scripts/lowest_versions.py $(if $(TORCH),--without $(TORCHES)) >$(BOUNDS)/lowest.txt
	@$(BOUNDS)/bin/python -m pip install --quiet --no-compile -c $(BOUNDS)/lowest.txt $(addprefix torch==,$(TORCH)) \
		-e '.[$(if $(TORCH),$(BOUNDED),all),dev]'
	@$(BOUNDS)/bin/python -m physml table g2-2 --no-run --latex - >/dev/null
	@$(BOUNDS)/bin/python -m pytest --quick $(WORKERS) $(ARGS)

CPU_ONLY := .venv-cpu
# Where pip finds torch built for CPUs alone.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

cpu-only: ## install torch for CPUs alone and the base into .venv-cpu, about 1 GB instead of 5; train one model
	@"$(or $(PYTHON),python3)" -m venv --clear $(CPU_ONLY)
	@$(CPU_ONLY)/bin/python -m pip install --quiet --no-compile $(if $(TORCH),torch==$(TORCH),torch) --index-url $(TORCH_INDEX)
	@$(CPU_ONLY)/bin/python -m pip install --quiet --no-compile -e .
	@$(CPU_ONLY)/bin/python scripts/cpu_only.py

site: $(READY) ## write the results as web pages into site/ (ARGS="--api --serve": with the library, and show them)
	@$(PY) -m physml site $(ARGS)

lint: $(READY) ## check style, types and layers: ruff, mypy, import-linter
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

bench: $(READY) ## time the recurrences against plain loops and nn.LSTM (ARGS=--help for more)
	@$(PY) -m scripts.bench $(if $(DEVICE),--device $(DEVICE)) $(ARGS)
	$(if $(DEVICE)$(ARGS),,@$(PY) -m scripts.bench.waits)

bench-graph: $(READY) ## runs per hour of small graphs against a plain loop of torch_geometric
	@$(PY) -m scripts.bench.graph $(ARGS)

bench-cells: $(READY) ## time compiled cells against loops, kernels by hand, torch's layers and JAX (ARGS=--help for more)
	@$(PY) -m scripts.bench.cells $(ARGS)

bench-bf16: $(READY) ## time products of bfloat16 against those of float32, recurrences in C (ARGS=--help for more)
	@$(PY) -m scripts.bench.bf16 $(ARGS)

gpu-check: $(READY) ## compare all backends with float64 on a GPU; exits 2 without one
	@$(PY) -m scripts.bench.check_backends --device cuda $(ARGS)

smoke: smoke-models smoke-readme ## every model and every task at tiny size, and the commands of README.md

smoke-models: $(READY)
	@$(PY) scripts/smoke.py

smoke-readme: $(READY)
	@$(PY) scripts/readme_commands.py --run README.md docs/reference.md docs/add-a-model.md docs/add-a-task.md docs/own-folder.md docs/export.md

table-%: $(READY) always ## train what is missing of a table and print it beside the paper's numbers
	@$(PHYSML) table $* --paper $(PAPER) $(FLAGS)

tables: $(READY) ## list all tables with their state
	@$(PHYSML) table --all

figure-%: $(READY) always ## the same for a figure
	@$(PHYSML) figure $* --paper $(PAPER) $(FLAGS)

figures: $(READY) ## list all figures
	@$(PHYSML) list figures

doctor: $(READY) ## say what is installed, what is missing and how to get it
	@$(PHYSML) doctor

clean: ## remove caches and build files; records, checkpoints and .venv stay
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
