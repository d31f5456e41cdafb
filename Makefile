# The two commands: `make sweep` and `make test`. Everything lands in .venv/, .servegrid/ and results/.

# The first Python that the server's wheel knows; if there is none, what the check below says is about python3.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
	&& echo $$p && exit; done; echo python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
SITE := $(or $(SERVEGRID_HOME),.servegrid)
TOOLS := $(SITE)/perf-analyzer/trial.json
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

.PHONY: sweep test check test-gpu cells mutations soak reliability audit lint install bench image-test bare-test offline-test clean

sweep: install
	$(BIN)/servegrid sweep --format ts-trace --format onnx --precision fp32 --precision fp16 --accelerator none

# What a contributor runs: lint, types, and the tests that need a few minutes.
test: install lint
	$(BIN)/pytest $(WORKERS) -m 'not (check or long or soak)'

# All else that guards a merge; with PostgreSQL, Chromium, a compiler and root none of it skips.
check: install
	$(BIN)/pytest $(WORKERS) -m 'check and not (long or soak)'

WORKERS := --numprocesses 2 --no-loadscope-reorder --durations 15

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(INSTALLED) $(TOOLS)

# On a host with an NVIDIA GPU, whose environment has CUDA builds of torch and onnxruntime: sessions on the card, and
# a short sweep.
test-gpu: install
	$(BIN)/pytest -m gpu

cells: install
	$(BIN)/pytest -m 'long and not fault'

# Tiny models broken in some 70 ways: how many the verdict catches. And unusual ones that are right.
mutations: install
	$(BIN)/python tests/mutations/run.py

soak: install
	$(BIN)/pytest -m soak -s

# The tests of faults, the longest among them, write the table of what they saw. Best as root: it mounts small disks.
reliability: install
	$(BIN)/pytest -m 'fault and not soak' --reliability docs/reliability.md

# Known vulnerabilities of what is installed. It asks PyPI's advisory service, so it is not in `make test`, which
# needs no network once it is installed.
audit: install
	$(PYTHON) -m venv $(SITE)/pip-audit
	$(SITE)/pip-audit/bin/pip install --quiet 'pip-audit>=2.9'
	$(SITE)/pip-audit/bin/pip-audit --progress-spinner off --path $$($(BIN)/python -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')

# Every bar, and then whether all hold.
bench: install
	@over=; for bar in hosted_overhead aa_pairs client_vs_perf_analyzer adaptive_points; do \
		echo "$$bar"; $(BIN)/python bench/$$bar.py || over="$$over $$bar"; \
	done; if [ -n "$$over" ]; then echo "over the bar:$$over" >&2; exit 1; fi

# Root, buildah and debootstrap; no container engine.
image-test:
	tests/image/run.sh

# Root and debootstrap: both commands on a Debian that has nothing else, as an ordinary user.
bare-test:
	tests/bare_machine/run.sh tests/bare_machine/readme_commands.sh

# The same, for docs/offline.md: the second machine has no network.
offline-test:
	tests/bare_machine/offline.sh

clean:
	rm -rf .venv .servegrid build *.egg-info # a store that SERVEGRID_HOME names may be shared

# Modules are compiled when they are first imported: most of these never are, and it is half of pip's time. What is
# compiled must then be kept, or each of the many processes compiles it again.
unexport PYTHONDONTWRITEBYTECODE
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -m servegrid.host.before_install $(SITE)
	@echo "installing into .venv: 3.3 GB, about 5 minutes"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --progress-bar off --no-compile --constraint constraints.txt \
		--editable '.[torch,tensorflow,onnx,tensorrt-rtx,dev]' | sed -un '/^\(Collecting\|Installing\|Successfully\)/p'
	@touch $@

# tritonserver, and perf_analyzer where it runs: every campaign of this host has the same load generator.
$(TOOLS): | $(INSTALLED)
	@echo "installing tritonserver and perf_analyzer into $(SITE): 0.4 GB, about 1 minute"
	@$(BIN)/servegrid doctor --install-server --install-perf-analyzer
