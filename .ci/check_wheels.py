"""Uses the three installed distributions in an environment that must have neither torch nor transformers."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from langchain_sidr import SiDRRetriever
from llama_index.core.schema import TextNode
from llama_index.retrievers.sidr import SiDRRetriever as LlamaIndexRetriever
from llama_index.retrievers.sidr import SiDRVectorStore

import sidr_rag
from sidr_rag import SiDR

TEXTS = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Falcons hunt by day."]
QUESTION = "Which metal carries a current?"

for absent in ("torch", "transformers"):
    if importlib.util.find_spec(absent) is not None:
        sys.exit(f"{absent} is installed, so this proves nothing about running without it")
if Path(sys.prefix) not in Path(sidr_rag.__file__).parents:
    sys.exit("sidr_rag was imported from elsewhere than the environment")

retriever = SiDRRetriever.from_texts(TEXTS, k=2)
for options in ({}, {"rerank": 3}, {"search": "full"}):
    found = retriever.invoke(QUESTION, **options)
    if found[0].page_content != TEXTS[1]:
        sys.exit(f"LangChain: the wrong answer with {options}")

nodes = [TextNode(text=text) for text in TEXTS]
if LlamaIndexRetriever.from_defaults(nodes, similarity_top_k=1).retrieve(QUESTION)[0].get_content() != TEXTS[1]:
    sys.exit("LlamaIndex: the wrong answer")
store = SiDRVectorStore()
store.add(nodes)
if store.as_index().as_retriever(similarity_top_k=1).retrieve(QUESTION)[0].get_content() != TEXTS[1]:
    sys.exit("LlamaIndex: the wrong answer from an index")

with tempfile.TemporaryDirectory() as folder:
    SiDR.from_texts(TEXTS, ids=["heart", "copper", "falcons"], path=Path(folder) / "store").close()
    with SiDR.open(Path(folder) / "store") as stored:
        if stored.search(QUESTION, k=1)[0].passage.id != "copper":
            sys.exit("the engine: the wrong answer from a reopened store")

for name in ("sidr-rag", "langchain-sidr", "llama-index-retrievers-sidr"):
    print(f"{name} {version(name)}: imported and used without torch")
