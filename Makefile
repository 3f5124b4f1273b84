# Needs Python >= 3.11 with its headers and a C++20 compiler; everything else is fetched into .venv at the pinned versions.
#   make demo PYTHON=python3.12           another interpreter
#   make test PYTEST_ARGS="-k relu -x"    arguments for pytest
# pip's own settings (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...) apply, e.g. to get a CPU build of torch.

PYTHON ?= python3
PYTEST_ARGS ?=
MACHINES ?=
MUTANTS_ARGS ?=

# A file stays in one process, so that its fixtures and the tables of its activations are made once.
PARALLEL := -n auto --dist loadfile

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ntkit-installed
CORE := $(sort $(shell find src/ntkit/_src/native/core -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.inc' \)))
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -c constraints.txt

.DELETE_ON_ERROR:
.PHONY: help setup demo test test-studies test-machines test-slow sanitize mutants wheel docs peer bench bench-empirical bench-layers bench-activations lint format clean distclean

help:
	@echo "Use"
	@echo "  make demo       kernels of scikit-learn's digits, a table and ntkit-demo.html"
	@echo "  make setup      only set up .venv, or compile the core again after a change"
	@echo "Test"
	@echo "  make test       the tests of the library"
	@echo "  make test-studies  the tests of the papers' studies, of their stored results and of the pages that show them"
	@echo "  make test-machines  the tests of numbers as on a machine with AVX2 only and on one with neither AVX nor FMA, on 2 and 4"
	@echo "                  threads and in other orders; MACHINES=all: the whole matrix that CI runs"
	@echo "  make test-slow  the tests that take minutes"
	@echo "  make sanitize   the tests of the core, built with AddressSanitizer and UBSan"
	@echo "  make mutants    random one-token changes of the sources, and those that no test notices; MUTANTS_ARGS=--help"
	@echo "  make lint       ruff, mypy, import-linter"
	@echo "  make format     let ruff put right what it can"
	@echo "Publish"
	@echo "  make docs       the site in build/site/, and the examples on its pages and in docstrings"
	@echo "  make wheel      an sdist and a wheel in dist/, and the tests run from the installed wheel; SMOKE=1: only tools/smoke.py"
	@echo "Measure"
	@echo "  make bench      the engines against each other and neural-tangents, which make peer installs; adds to docs/results/benchmarks.jsonl"
	@echo "  make bench-empirical  the methods of empirical kernels against PyTorch's tutorial and neural-tangents"
	@echo "  make bench-layers  attention, encoder-decoders and graphs against neural-tangents: values and times"
	@echo "  make bench-activations  networks of tanh, SiLU, GELU and erf against ReLU, the reference engine and neural-tangents"
	@echo "Tidy"
	@echo "  make clean      remove what building and testing left; make distclean: and .venv"

setup: $(STAMP)

# Build isolation is off so that the pinned build tools are used and the build directory stays valid between installs.
$(STAMP): pyproject.toml studies/pyproject.toml constraints.txt CMakeLists.txt $(CORE)
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "ntkit needs Python 3.11 or newer; '$(PYTHON)' was not found. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ntkit needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import os, sysconfig; sys_h = os.path.join(sysconfig.get_path("include"), "Python.h"); raise SystemExit(not os.path.exists(sys_h))' || { \
	  echo "ntkit compiles a C++ core against Python.h, which '$(PYTHON)' lacks. Install its headers (python3-dev or python3-devel)." >&2; exit 1; }
	@found=; for c in $$CXX c++ g++ clang++; do if command -v "$$c" >/dev/null 2>&1; then found=$$c; break; fi; done; \
	  test -n "$$found" || { echo "ntkit compiles a C++ core and found no compiler. Install g++ or clang++, or set CXX." >&2; exit 1; }
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	$(PIP) scikit-build-core nanobind cmake ninja setuptools
	$(PIP) --no-build-isolation -e '.[dev]' -e ./studies
	@touch $@

demo: $(STAMP)
	$(BIN)/ntkit run digits

test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

test-studies: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) studies/tests studies/src $(PYTEST_ARGS)

test-machines: $(STAMP)
	$(BIN)/python tools/machines.py $(MACHINES)

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m slow tests src/ntkit studies/tests $(PYTEST_ARGS) || test $$? -eq 5  # 5: there are none

# The core built with AddressSanitizer and UBSan, beside the ordinary one; its folder on PYTHONPATH hides the editable install.
SANITIZED := build/sanitized
sanitize: $(STAMP)
	$(PIP) -q --no-build-isolation --no-deps --upgrade --target $(SANITIZED) -C build-dir=build/sanitize -C cmake.define.NTKIT_SANITIZE=ON .
	PYTHONPATH=$(SANITIZED):$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	"$(PYTHON)" -m pytest tests/native tests/rules/test_random_networks.py $(PYTEST_ARGS)

mutants: $(STAMP)
	$(BIN)/python tools/mutants $(MUTANTS_ARGS)

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	$(BIN)/python -m pytest $(PARALLEL) tests/test_pages.py tests/test_links.py studies/tests/test_pages.py studies/tests/test_site.py src/ntkit $(PYTEST_ARGS)
	@echo "build/site/index.html"

# The tests run in a folder that has no src/, with an environment of its own, so that only the wheel can answer the imports.
FRESH := build/wheel
wheel: $(STAMP)
	rm -rf dist $(FRESH) && mkdir -p dist $(FRESH)/project
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip wheel -q -c constraints.txt --no-deps --no-build-isolation -w dist dist/ntkit-*.tar.gz
	git ls-files | grep -v '^src/\|^studies/\|^benchmarks/' | tar -c -T - | tar -x -C $(FRESH)/project
	"$(PYTHON)" -m venv $(FRESH)/venv
	wheel=$$(ls $(CURDIR)/dist/ntkit-*.whl) && PIP_DISABLE_PIP_VERSION_CHECK=1 $(FRESH)/venv/bin/python -m pip install -q -c constraints.txt "$$wheel[$(if $(SMOKE),cli,dev)]"
	cd $(FRESH)/project && ../venv/bin/python tools/smoke.py
	$(if $(SMOKE),,cd $(FRESH)/project && ../venv/bin/python -m pytest $(PARALLEL) tests --pyargs ntkit $(PYTEST_ARGS))
	@ls -l dist

# neural-tangents needs versions that nothing else here can have, so it lives alone.
PEER := .venv-peer
peer: $(PEER)/.installed
$(PEER)/.installed: benchmarks/peer.txt
	@test -x $(PEER)/bin/pip || "$(PYTHON)" -m venv $(PEER)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(PEER)/bin/python -m pip install -r benchmarks/peer.txt
	@touch $@

bench: $(STAMP)
	-$(MAKE) peer
	$(BIN)/python benchmarks/run.py --peer $(PEER)/bin/python $(BENCH_ARGS)

bench-empirical: $(STAMP)
	-$(MAKE) peer
	$(BIN)/python benchmarks/empirical.py --peer $(PEER)/bin/python $(BENCH_ARGS)

bench-layers: $(STAMP)
	-$(MAKE) peer
	$(BIN)/python benchmarks/layers.py --peer $(PEER)/bin/python $(BENCH_ARGS)

bench-activations: $(STAMP)
	-$(MAKE) peer
	$(BIN)/python benchmarks/activations.py --peer $(PEER)/bin/python $(BENCH_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks ntkit-demo.html benchmark.json benchmark-empirical.json docs/api docs/gallery
	find src tests studies -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(PEER)
