# make run | test | gpu-check | lint | format | clean. They make the environment in .venv when it is missing.
# make run VENV=DIR uses an existing environment as it is and installs nothing into it.

VENV ?= .venv
PYTHON ?= python3
CONFIG ?= seed
ARGS ?=
# Processes that share out the tests. Many tests start ranks of their own, so more than the cores gain nothing.
WORKERS ?= 2

PY := $(VENV)/bin/python
STAMP := .venv/.kvstress-installed
# An environment that someone brings is theirs: only .venv is ever made or changed here.
READY := $(if $(filter .venv,$(VENV)),$(STAMP),foreign-venv)

export OMP_NUM_THREADS ?= 1

.PHONY: run test gpu-check lint format clean foreign-venv

run: $(READY)
	$(PY) -m stress compare $(CONFIG) --base unpatched --test patched $(ARGS)

test: $(READY)
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

# On a machine with a CUDA or ROCm device, with the torch that it needs: make gpu-check VENV=DIR. The script's own exit
# codes are 0, 1 and 3 (no device); make turns the last two into its 2.
gpu-check: $(READY)
	PYTHONPATH=. $(PY) scripts/gpu_check.py

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# The stamp is written last, so that an interrupted installation is taken up again.
$(STAMP): pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q -c constraints.txt -e '.[test,dev]'
	touch $@

foreign-venv:
	@test -x $(PY) || { echo "make: VENV=$(VENV): no bin/python there; name an existing environment or leave VENV out" >&2; exit 2; }
	@$(PY) -c 'import torch' || { echo "make: VENV=$(VENV): it does not import torch; install the build for your device there first" >&2; exit 2; }

clean:
	rm -rf build dist ./*.egg-info .pytest_cache .ruff_cache .hypothesis
	find allocator linker stress configs tests -name __pycache__ -type d -prune -exec rm -rf {} +
