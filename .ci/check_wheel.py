"""Uses one wheel, installed alone with what it declares, in an environment without torch and transformers.

Arguments: the folder of this tree's wheels, and the file name of the one that was installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import distributions
from pathlib import Path

import sidr_rag
from sidr_rag import SiDR

TEXTS = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Falcons hunt by day."]
IDS = ["heart", "copper", "falcons"]
QUESTION = "Which metal conducts a current?"
CORE, LANGCHAIN, LLAMA_INDEX = "sidr-rag", "langchain-sidr", "llama-index-retrievers-sidr"


def need(condition: object, fault: str) -> None:
    """End with a message unless a condition holds."""
    if not condition:
        sys.exit(f"{wheel}: {fault}")


def check_environment(name: str, dist: Path) -> None:
    """Only this wheel and the core are installed, both of this tree, and none of what they do without."""
    for absent in ("torch", "transformers", "pytest"):
        need(importlib.util.find_spec(absent) is None, f"{absent} is installed, so nothing is proved about its absence")
    inside = Path(sys.prefix) in Path(sidr_rag.__file__).parents
    need(inside, "sidr_rag was imported from elsewhere than the environment")
    found = {d.metadata["Name"]: d.version for d in distributions()}
    own = {other: version for other, version in found.items() if other in (CORE, LANGCHAIN, LLAMA_INDEX)}
    need(own.keys() == {CORE, name}, f"{sorted(own)} are installed; expected it and {CORE} alone")
    built = {tuple(file.name.split("-")[:2]) for file in dist.glob("*.whl")}
    need({(other.replace("-", "_"), v) for other, v in own.items()} <= built, f"{own} are not the wheels of this tree")


def check_core() -> None:
    """Index, search, change and reopen; the command names its extra."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with SiDR.from_texts(TEXTS, ids=IDS, metadatas=[{"n": n} for n in range(3)], path=store) as sidr:
            for options in ({}, {"rerank": 3}, {"search": "full"}, {"filter": {"n": {"gte": 1}}}):
                best = sidr.search(QUESTION, k=1, **options)[0].passage.id
                need(best == "copper", f"the wrong answer with {options}")
            need(sidr.explain(QUESTION, "copper").parts, "no explanation")
            sidr.add(["Silver carries a current with less loss."], ids=["silver"])
            sidr.delete(["copper"])
        with SiDR.open(store) as stored:
            need(stored.search(QUESTION, k=1)[0].passage.id == "silver", "the wrong answer from a reopened store")
    command = Path(sysconfig.get_path("scripts")) / "sidr-rag"
    told = subprocess.run([command, "--help"], capture_output=True, encoding="utf-8", check=False)
    need(told.returncode == 1 and "sidr-rag[cli]" in told.stderr, "the command does not say which extra it needs")


def check_langchain() -> None:
    """Retriever and vector store; what needs an extra names it."""
    import langchain_sidr
    from langchain_sidr import SiDRRetriever, SiDRVectorStore

    retriever = SiDRRetriever.from_texts(TEXTS, k=2)
    for options in ({}, {"rerank": 3}, {"search": "full"}):
        found = retriever.invoke(QUESTION, **options)
        need(found[0].page_content == TEXTS[1], f"the wrong answer with {options}")
    best = SiDRVectorStore.from_texts(TEXTS).similarity_search(QUESTION, k=1)
    need(best[0].page_content == TEXTS[1], "the wrong answer of the vector store")
    try:
        _ = langchain_sidr.SiDRSparseEmbeddings
    except ImportError as error:
        need("langchain-sidr[qdrant]" in str(error), "what needs an extra does not name it")
    else:
        need(False, "langchain-qdrant is installed without the extra")


def check_llama_index() -> None:
    """Retriever, and the vector store in an index."""
    from llama_index.core.schema import TextNode
    from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

    nodes = [TextNode(text=text) for text in TEXTS]
    found = SiDRRetriever.from_defaults(nodes, similarity_top_k=1, rerank=3).retrieve(QUESTION)
    need(found[0].get_content() == TEXTS[1], "the wrong answer")
    store = SiDRVectorStore()
    store.add(nodes)
    found = store.as_index().as_retriever(similarity_top_k=1).retrieve(QUESTION)
    need(found[0].get_content() == TEXTS[1], "the wrong answer from an index")


CHECKS = {CORE: check_core, LANGCHAIN: check_langchain, LLAMA_INDEX: check_llama_index}

dist, wheel = Path(sys.argv[1]), sys.argv[2]
name = wheel.split("-")[0].replace("_", "-")
check_environment(name, dist)
CHECKS[name]()
print(f"{wheel}: installed alone, imported and used, without torch")
