"""The default path without torch and transformers, and without a network."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The finders themselves no longer see the packages, so that find_spec says what it says where they are not installed.
HIDE = """
import sys
HIDDEN = ("torch", "transformers")
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, *rest)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
# An audit hook sees every use of a socket, however it is reached; asking for this machine's own name is none.
OFFLINE = """
import sys
def refuse(event, arguments):
    if event.startswith("socket.") and event != "socket.gethostname":
        raise RuntimeError(f"the network was used: {event}")
sys.addaudithook(refuse)
"""
USE = """
import importlib.util
from sidr_rag import SiDR
texts = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Falcons hunt by day."]
question = "Which metal conducts a current?"
with SiDR.from_texts(texts, ids=["heart", "copper", "falcons"], path=sys.argv[1]) as sidr:
    for options in ({}, {"rerank": 3}, {"search": "full"}):
        assert sidr.search(question, k=1, **options)[0].passage.id == "copper", options
    sidr.add(["Silver carries electric current with less loss."], ids=["silver"])
    assert "silver" in [r.passage.id for r in sidr.search(question, rerank=4)]
with SiDR.open(sys.argv[1]) as sidr:
    assert len(sidr) == 4
    assert sidr.explain(question, "copper").parts
"""
LANGCHAIN = """
from langchain_sidr import SiDRRetriever
retriever = SiDRRetriever.from_texts(["Copper conducts electricity.", "Falcons hunt by day."], k=1, rerank=2)
assert retriever.invoke("Which metal conducts a current?")[0].page_content == "Copper conducts electricity."
"""


def run_python(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hiding_works():
    run_python(HIDE + "import importlib.util\nassert importlib.util.find_spec('torch') is None\n")
    run_python(HIDE + "try:\n    import transformers\nexcept ModuleNotFoundError:\n    pass\nelse:\n    sys.exit(1)\n")


def test_refusing_works():
    code = OFFLINE + (
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept RuntimeError:\n    pass\n"
        "else:\n    sys.exit(1)\n"
    )
    run_python(code)


def test_the_engine_runs_without_torch_and_transformers(tmp_path):
    out = run_python(HIDE + USE + "print('torch' in sys.modules, 'transformers' in sys.modules)", str(tmp_path / "s"))
    assert out.split() == ["False", "False"]


@pytest.mark.parametrize("hidden", [HIDE, ""], ids=["without torch", "with torch"])
def test_the_engine_uses_no_network(tmp_path, hidden):
    run_python(OFFLINE + hidden + USE, str(tmp_path / "s"))


def test_langchain_uses_no_network_and_no_torch():
    run_python(OFFLINE + HIDE + LANGCHAIN)


def test_a_hub_model_without_torch_names_the_extra():
    code = HIDE + (
        "from sidr_rag import MissingExtraError, SiDR\n"
        "try:\n    SiDR.from_texts(['a'], model='jzhoubu/sidr-nq')\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    assert "pip install 'sidr-rag[torch]'" in run_python(OFFLINE + code)
