# Every target works from a fresh clone with Python and make alone; the first run sets up .venv.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.sidr-installed
PACKAGES := -e '.[torch,files,cli,eval,train]' -e integrations/langchain -e integrations/llama_index
MANIFESTS := pyproject.toml integrations/langchain/pyproject.toml integrations/llama_index/pyproject.toml \
	constraints.txt requirements-dev.txt

.PHONY: help setup demo notebooks test lint format types docs bench paper model wheels ci clean distclean

help:
	@echo "make demo | notebooks | test | lint | format | types | docs | bench | paper | model | wheels | ci | clean | distclean    (PYTHON=$(PYTHON))"

setup: $(STAMP)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or later is needed; choose one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "No virtual environment could be made; on Debian and Ubuntu, install python3-venv." >&2; exit 1; }

$(STAMP): $(PY) $(MANIFESTS)
	@$(PY) -m pip --version >/dev/null || \
		{ echo "$(VENV) has no pip (an unfinished setup?); remove it with: make distclean" >&2; exit 1; }
	@echo "Installing into $(VENV); the first time takes a few minutes."
	@$(PY) -m pip install --quiet --no-compile -c constraints.txt -r requirements-dev.txt $(PACKAGES) || \
		{ echo "Installing failed, see above. If pip found no torch for this Python ($$($(PY) --version))," \
			"remove $(VENV) and choose another: make distclean; make PYTHON=python3.12" >&2; exit 1; }
	@touch $@

demo: $(STAMP)
	$(PY) demo/run.py

notebooks: $(STAMP)
	$(PY) -m pytest -q -n 2 --nbmake --nbmake-timeout=900 notebooks

test: $(STAMP)
	.venv/bin/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(STAMP)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(STAMP)
	$(PY) -m mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

bench: $(STAMP)
	@$(PY) -m pip install --quiet -c constraints.txt -r requirements-bench.txt || \
		echo "Some peers of the benchmarks cannot be installed here; their rows will say so." >&2
	$(PY) -m benchmarks

paper: $(STAMP)
	@$(PY) -m pip install --quiet -c constraints.txt -r requirements-bench.txt || \
		echo "Some peers of the benchmarks cannot be installed here; their rows will say so." >&2
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.paper

# The bundled model from the shared training data, about eight hours of one core: see configs/README.md.
model: $(STAMP)
	$(PY) -m pip install --quiet -c constraints.txt -r requirements-bench.txt
	$(PY) -m benchmarks.guide runs/bge-small-en
	$(PY) -m sidr_rag.cli train configs/default.yaml
	$(PY) -m sidr_rag.cli tune runs/default/best configs/default.yaml --active-dims 64
	$(PY) -m sidr_rag.cli train configs/default-second.yaml
	$(PY) -m sidr_rag.cli train configs/default-third.yaml
	$(PY) -m sidr_rag.cli average runs/default-second/last runs/default-third/last -o runs/sidr-mini
	$(PY) -m sidr_rag.cli train configs/default-binary.yaml
	$(PY) -m sidr_rag.cli tune runs/default-binary/last configs/default-tune.yaml --active-dims 64

wheels: $(STAMP)
	rm -rf dist
	$(PY) -m build --wheel --no-isolation --outdir dist .
	$(PY) -m build --wheel --no-isolation --outdir dist integrations/langchain
	$(PY) -m build --wheel --no-isolation --outdir dist integrations/llama_index

ci:
	.ci/run

clean:
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
