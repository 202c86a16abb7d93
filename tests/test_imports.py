"""`import sidr_rag` is light, and exports what it says."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pytest

import sidr_rag

HEAVY = ["torch", "transformers", "numba", "typer", "rich", "pypdf", "langchain_core", "llama_index", "sqlite3"]
EXPORTS = [
    "FileReadError",
    "Hits",
    "IndexFormatError",
    "InvalidInputError",
    "InvalidTypeError",
    "MissingExtraError",
    "ModelNotFoundError",
    "Packed",
    "Passage",
    "ReadOnlyError",
    "SearchResult",
    "SiDR",
    "SidrError",
    "SparseVectors",
    "StorageError",
    "StoreLockedError",
    "Weighting",
    "__version__",
    "pack",
]
# On what the bundled model needs, nothing of the extras is imported, whatever is installed.
FIRST_ANSWER = "from sidr_rag import SiDR; SiDR.from_texts(['a cat sat']).search('cat', rerank=0)"


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(code):
    names = json.loads(run_python(f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"))
    return {name for name in HEAVY if name in names}


def test_import_loads_nothing_heavy():
    assert loaded_by("import sidr_rag") == set()


def test_the_command_line_loads_nothing_heavy_before_it_runs():
    assert loaded_by("import sidr_rag.cli") == set()


def test_indexing_and_a_beta_search_need_neither_torch_nor_a_framework():
    assert (
        loaded_by(FIRST_ANSWER) & {"torch", "transformers", "typer", "pypdf", "langchain_core", "llama_index"} == set()
    )


def test_import_takes_under_300_milliseconds():
    code = "import time; t = time.perf_counter(); import sidr_rag; print(time.perf_counter() - t)"
    run_python(code)
    assert statistics.median(float(run_python(code)) for _ in range(5)) < 0.3


def test_exports_are_pinned_and_sorted():
    assert sidr_rag.__all__ == EXPORTS
    assert sorted(sidr_rag.__all__, key=str.lower) == sorted(EXPORTS, key=str.lower)
    assert sorted(EXPORTS) == EXPORTS


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_resolves(name):
    assert getattr(sidr_rag, name) is not None
    assert name in dir(sidr_rag)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        sidr_rag.no_such_name  # noqa: B018


def test_the_version_is_the_distribution_s():
    from importlib.metadata import version

    assert sidr_rag.__version__ == version("sidr-rag")
