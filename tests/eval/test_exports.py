"""`sidr_rag.eval` exports what it says, and importing it loads nothing heavy."""

import json
import subprocess
import sys

import pytest

import sidr_rag.eval


def test_import_is_light():
    code = (
        "import sys, json, sidr_rag.eval, sidr_rag.eval.runner, sidr_rag.eval.tables\n"
        "heavy = {'torch', 'transformers', 'numba', 'ir_measures', 'bm25s', 'rich'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", sidr_rag.eval.__all__)
def test_every_export_resolves_to_the_same_thing_each_time(name):
    # A submodule of an export's name would hide it after its first use.
    first = getattr(sidr_rag.eval, name)
    assert callable(first)
    assert getattr(sidr_rag.eval, name) is first
    assert name in dir(sidr_rag.eval)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        sidr_rag.eval.no_such_name  # noqa: B018
