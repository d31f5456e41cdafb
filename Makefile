# The two commands: `make sweep` and `make test`. Everything lands in .venv/, .servegrid/ and results/.

PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
	&& echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
SITE := $(or $(SERVEGRID_HOME),.servegrid)
SERVER := $(SITE)/tritonserver
PERF_ANALYZER := $(SITE)/perf-analyzer/wheel

# perf_analyzer's binary needs glibc 2.38; `make sweep` brings it along only where that is there.
NEW_LIBC := $(shell printf '2.38\n%s\n' "$$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" | sort -VC && echo yes)

.PHONY: sweep test test-gpu cells soak reliability audit lint install perf-analyzer bench image-test clean

sweep: install
	$(BIN)/servegrid sweep --format ts-trace --format onnx --precision fp32 --precision fp16 --accelerator none

test: install lint
	-$(MAKE) perf-analyzer
	$(BIN)/pytest --numprocesses 2 --no-loadscope-reorder --durations 30

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(INSTALLED) $(SERVER) $(if $(NEW_LIBC),$(PERF_ANALYZER))

perf-analyzer: $(PERF_ANALYZER)

# On a host with an NVIDIA GPU, whose environment has CUDA builds of torch and onnxruntime: sessions on the card, and
# a short sweep.
test-gpu: install
	$(BIN)/pytest -m gpu

cells: install
	$(BIN)/pytest -m 'long and not fault'

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
bench: install perf-analyzer
	@over=; for bar in hosted_overhead aa_pairs client_vs_perf_analyzer adaptive_points; do \
		echo "$$bar"; $(BIN)/python bench/$$bar.py || over="$$over $$bar"; \
	done; if [ -n "$$over" ]; then echo "over the bar:$$over" >&2; exit 1; fi

# Root, buildah and debootstrap; no container engine.
image-test:
	tests/image/run.sh

clean:
	rm -rf .venv .servegrid build *.egg-info # a store that SERVEGRID_HOME names may be shared

# Modules are compiled when they are first imported: most of these never are, and it is half of pip's time. What is
# compiled must then be kept, or each of the many processes compiles it again.
unexport PYTHONDONTWRITEBYTECODE
$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "servegrid needs Python 3.11 or 3.12; set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[torch,tensorflow,onnx,tensorrt-rtx,dev]'
	touch $@

$(SERVER): | $(INSTALLED)
	$(BIN)/servegrid doctor --install-server

$(PERF_ANALYZER): | $(INSTALLED) $(SERVER)
	$(BIN)/servegrid doctor --install-perf-analyzer
