"""The stages of a search: candidates that need no embedding, and what orders the best of them.

from sidr_rag.rerank import BiEncoder, Blend, Bm25, CrossEncoder, Fusion

sidr.search(query, rerank=100, reranker="theta")                                   # the paper's late parametric
sidr.search(query, rerank=100, first_stage="bm25", reranker="theta")               # BM25 + SiDR
sidr.search(query, rerank=100, reranker=BiEncoder("intfloat/e5-base-v2"))          # SiDR-beta + E5
sidr.search(query, rerank=100, first_stage="bm25", reranker=BiEncoder("facebook/contriever"))
sidr.search(query, rerank=20, first_stage="sidr+bm25", reranker=Blend(CrossEncoder("folder/"), 0.3))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidr_rag.rerank.background import Embedding as Embedding
    from sidr_rag.rerank.bi_encoder import BiEncoder as BiEncoder
    from sidr_rag.rerank.bm25 import Bm25 as Bm25
    from sidr_rag.rerank.cross import CrossEncoder as CrossEncoder
    from sidr_rag.rerank.fusion import Fusion as Fusion
    from sidr_rag.rerank.second import Blend as Blend

_HOMES = {
    "BiEncoder": "bi_encoder",
    "Blend": "second",
    "Bm25": "bm25",
    "CrossEncoder": "cross",
    "Embedding": "background",
    "Fusion": "fusion",
}

__all__ = ["BiEncoder", "Blend", "Bm25", "CrossEncoder", "Embedding", "Fusion"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
