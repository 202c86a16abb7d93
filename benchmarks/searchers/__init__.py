"""Ways to search the same passages: this library's, and what people would pick instead, by name."""

from __future__ import annotations

import importlib

from benchmarks.searchers.base import PeerAbsentError, Searcher

# Module and class of each; a module imports its peer only when a searcher of it is used.
_PLACES = {
    "sidr": ("sidr", "SidrVectors"),
    "sidr_one_level": ("sidr", "SidrOneLevel"),
    "sidr_three_levels": ("sidr", "SidrThreeLevels"),
    "sidr_search": ("sidr", "SidrSearch"),
    "sidr_encode": ("sidr", "SidrEncode"),
    "plain": ("plain", "PlainAccumulation"),
    "torch": ("authors", "TorchCsr"),
    "scipy": ("matrices", "ScipyCsr"),
    "splade_index": ("matrices", "SpladeIndex"),
    "tantivy": ("tantivy", "TantivyVectors"),
    "seismic": ("seismic", "Seismic"),
    "bmp": ("bmp", "Bmp"),
    "qdrant": ("vector_stores", "QdrantEdge"),
    "milvus": ("vector_stores", "MilvusLite"),
    "bm25s": ("words", "Bm25s"),
    "tantivy_words": ("tantivy", "TantivyWords"),
    "rank_bm25": ("words", "RankBm25"),
}
NAMES = tuple(_PLACES)


def searcher(name: str) -> type[Searcher]:
    """The class of that name.

    Raises:
        KeyError: if there is none.
    """
    module, attribute = _PLACES[name]
    found: type[Searcher] = getattr(importlib.import_module(f"benchmarks.searchers.{module}"), attribute)
    return found


__all__ = ["NAMES", "PeerAbsentError", "Searcher", "searcher"]
