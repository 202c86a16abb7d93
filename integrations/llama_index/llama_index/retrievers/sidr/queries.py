"""A LlamaIndex vector store query as a search of the engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.retrievers.sidr.filters import all_of
from llama_index.retrievers.sidr.nodes import ID_KEY, of_documents
from llama_index.retrievers.sidr.options import search_arguments, split
from llama_index.retrievers.sidr.reasons import REQUESTS, checked_requests, found_nodes

from sidr_rag import InvalidInputError, InvalidTypeError, SearchResult, SiDR
from sidr_rag.rerank.fusion import Fusion
from sidr_rag.similarity import search_diverse

_DIVERSITY = {"mmr_threshold": 0.5, "mmr_prefetch_factor": 4.0}
_KEYWORDS = "bm25"


def run_query(
    engine: SiDR, query: VectorStoreQuery, options: Mapping[str, Any], given: Mapping[str, Any]
) -> list[NodeWithScore]:
    """Search as a query says.

    Args:
        engine: where.
        query: its text, never its embedding.
        options: the vector store's.
        given: with this one query, in their place.

    Raises:
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
    """
    if not isinstance(query.query_str, str):
        raise InvalidTypeError(
            f"query_str is a {type(query.query_str).__name__}; this store searches for texts and takes no embeddings"
        )
    diversity, own = split(given, _DIVERSITY)
    requests, chosen = split({**options, **_of_mode(query), **own}, REQUESTS)
    arguments = search_arguments(query.similarity_top_k, query.filters, chosen)
    documents = of_documents(query.doc_ids) if query.doc_ids else None
    arguments["filter"] = all_of(arguments["filter"], _chosen_nodes(engine, query), documents)
    text = query.query_str

    def find() -> list[SearchResult]:
        if query.mode == VectorStoreQueryMode.MMR:
            return search_diverse(engine, text, **_diverse(query, arguments, diversity))
        return engine.search(text, **arguments)

    return found_nodes(engine, text, find, arguments, **checked_requests(requests))


def _of_mode(query: VectorStoreQuery) -> dict[str, Any]:
    """What a query's mode says about the search."""
    if query.mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.MMR):
        return {}
    if query.mode == VectorStoreQueryMode.TEXT_SEARCH:
        return {"first_stage": "lexical"}
    if query.mode == VectorStoreQueryMode.HYBRID:
        return {"first_stage": _hybrid(query.alpha)}
    raise InvalidInputError(
        f"mode={getattr(query.mode, 'value', query.mode)!r} is not offered; choose default, sparse, text_search, "
        "hybrid or mmr"
    )


def _hybrid(alpha: float | None) -> Any:
    if alpha is None:
        return Fusion(("sidr", _KEYWORDS))
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 <= alpha <= 1:
        raise InvalidInputError(f"alpha={alpha!r} must be a number from 0 (BM25 alone) to 1 (the learned search alone)")
    if alpha in (0, 1):
        return "sidr" if alpha else _KEYWORDS
    return Fusion(("sidr", _KEYWORDS), weights=(alpha, 1 - alpha))


def _chosen_nodes(engine: SiDR, query: VectorStoreQuery) -> dict[str, Any] | None:
    # An index without a document store gives an empty list where it means all.
    if not query.node_ids:
        return None
    for passage in engine.get(query.node_ids):
        if ID_KEY not in passage.metadata:
            raise InvalidInputError(
                f"node_ids: {passage.id!r} was not added as a node, and only nodes can be chosen by id; use filters"
            )
    return {"path": [ID_KEY], "in": list(query.node_ids)}


def _diverse(query: VectorStoreQuery, arguments: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `search_diverse`."""
    of_query = {} if query.mmr_threshold is None else {"mmr_threshold": query.mmr_threshold}
    threshold, factor = ({**_DIVERSITY, **of_query, **given}[name] for name in _DIVERSITY)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor >= 1:
        raise InvalidInputError(f"mmr_prefetch_factor={factor!r} must be a number of at least 1")
    # A positive least score keeps out what does not match.
    least = max(arguments["min_score"] or 0.0, sys.float_info.min)
    fetch_k = round(arguments["k"] * factor)
    return {**arguments, "fetch_k": fetch_k, "relevance_weight": threshold, "min_score": least}
