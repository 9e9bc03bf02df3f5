# Everything from nothing: only Python >= 3.11 and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all test-gpu bench-kernels lint format types imports check clean help

help:
	@echo "make demo      diagnose recorded captures, optimize on a recorded study, profile live where a GPU with ncu is"
	@echo "make test      the CPU test suite"
	@echo "make check     lint, types, import contracts"
	@echo "make test-gpu  the GPU tests, with the python in PYTHON (needs torch, ncu)"
	@echo "make bench-kernels  kernels and libraries on this GPU, with the python in PYTHON"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1)"; \
	    echo "next:  make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/01_demo.py

# Folders in two processes, for two cores: the longest first, then whatever is left; none is named
# that need not be, so that none is forgotten.
LONGEST := tests/kernels/providers tests/validation tests/api tests/cli
FOLDERS := $(filter-out $(LONGEST) tests/kernels tests/golden,$(sort $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.py)))))
PARTS ?= "tests/kernels --ignore=tests/kernels/providers" $(LONGEST) $(FOLDERS) "$(wildcard tests/test_*.py)"

test: $(STAMP)
	@logs=$$(mktemp -d); export logs; trap 'rm -rf $$logs' EXIT; \
	printf '%s\n' $(PARTS) | xargs -P 2 -I PART sh -c ' \
	  $(BIN)/python -m pytest -m "not gpu and not ncu" PART > $$logs/$$$$ 2>&1; rc=$$?; \
	  cat $$logs/$$$$; echo "PART: exit $$rc" | tee -a $$logs/ends; exit $$rc'; rc=$$?; \
	cat $$logs/ends; exit $$rc

test-gpu:
	KERNEL_COMPASS_REQUIRE_GPU=1 PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest -m "gpu or ncu" -p no:cacheprovider $(PYTEST_ARGS)

bench-kernels:
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) benchmarks/kernels_bench.py --output $(or $(OUTPUT),data/kernels_bench.json) --compile $(BENCH_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

check: lint types imports

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo dist
	find . -name __pycache__ -prune -exec rm -rf {} +
