"""Searches with the promises of a vector store: filled up to k, relevance in 0..1, results that differ."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sidr_rag.errors import InvalidInputError
from sidr_rag.inputs import as_count, query_list
from sidr_rag.listing import list_passages
from sidr_rag.pipeline import Request
from sidr_rag.search.diversity import maximal_marginal_relevance
from sidr_rag.search.weighting import BINARY
from sidr_rag.types import Passage, SearchResult

if TYPE_CHECKING:
    from sidr_rag.engine import SiDR

_DEFAULTS = {field.name: field.default for field in fields(Request)}


def search_filled(sidr: SiDR, query: str, *, k: int = 10, **search: Any) -> list[SearchResult]:
    """`SiDR.search`, and where fewer than k passages match, the oldest others, as a vector store would give them.

    What is filled in passes the filter and has a score of 0; nothing is filled in below a positive `min_score`.

    Args:
        sidr: the store.
        query: one query.
        k: how many.
        search: the other arguments of `SiDR.search`.

    Raises:
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
    """
    query_list([query])
    results = sidr.search(query, k=k, **search)
    least = search.get("min_score")
    if len(results) >= k or (least is not None and least > 0):
        return results
    found = {result.passage.id for result in results}
    others = list_passages(sidr, filter=search.get("filter"), limit=k - len(results), without=found)
    beta = 0.0 if search.get("search", "beta") == "beta" else None
    return results + [
        SearchResult(passage, 0.0, rank, beta) for rank, passage in enumerate(others, start=len(results) + 1)
    ]


def search_diverse(
    sidr: SiDR, query: str, *, k: int = 10, fetch_k: int = 20, relevance_weight: float = 0.5, **search: Any
) -> list[SearchResult]:
    """Of the `fetch_k` best passages (filled up as by `search_filled`) the k that are relevant and unlike each other.

    See `sidr_rag.search.diversity`. The relevance of a passage is its score divided by the best one.

    Raises:
        InvalidInputError, InvalidTypeError: also if `rerank` is asked for: the scores of two stages cannot be compared.
    """
    as_count("k", k)
    if search.get("rerank"):
        raise InvalidInputError(f"rerank={search['rerank']} cannot be combined with diversity; leave it out")
    candidates = search_filled(sidr, query, k=as_count("fetch_k", fetch_k), **search)
    scores = np.array([result.score for result in candidates], dtype=np.float64)
    best = float(scores.max(initial=0.0))
    bags = sidr.bags([result.passage.content for result in candidates])
    chosen = maximal_marginal_relevance(scores / best if best else scores, bags, k, relevance_weight)
    return [
        SearchResult(candidates[i].passage, candidates[i].score, rank, candidates[i].beta_score)
        for rank, i in enumerate(chosen, start=1)
    ]


def search_relevance(sidr: SiDR, query: str, *, k: int = 10, **search: Any) -> list[tuple[Passage, float]]:
    """Passages with the share of the query's weight that they hold: 1 for all of its dimensions, 0 for none.

    Defined for binary beta search alone, where a score is a sum over the query's dimensions and the sum over all of
    them bounds it exactly. Filled up to k as by `search_filled`.

    Args:
        sidr: the store.
        query: one query.
        k: how many.
        search: `filter`, `query_repr`, `first_stage` and `max_active_dims` of `SiDR.search`.

    Raises:
        InvalidInputError: if the store has another weighting, or another search is asked for: there a score has no
            exact bound.
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
    """
    request = Request.of(**{**_DEFAULTS, **search, "k": k})
    lacking = [
        name
        for name in ("search", "rerank", "min_score", "weight_floor")
        if getattr(request, name) != getattr(Request, name)
    ]
    if sidr._pipeline.weighting != BINARY:
        lacking.append("this store's weighting")
    if lacking:
        raise InvalidInputError(
            f"relevance in 0..1 needs an exact bound on the score, which is not given with {' and '.join(lacking)}; "
            "make the store with weighting='binary' and use plain beta search, or use the scores themselves"
        )
    representation = "bot" if request.first_stage == "lexical" else request.query_repr
    vectors = sidr.encoder.encode_binary_queries(
        query_list([query]), representation=representation, max_active_dims=request.max_active_dims
    )
    ((seqs, scores),), rows = sidr._pipeline.run_vectors(vectors, request.k, request.filter)
    # Added in the order of the scores themselves, so that a passage with every dimension gets exactly 1.
    bound = np.float32(np.cumsum(vectors.weights.astype(np.float64))[-1]) if len(vectors.weights) else np.float32(1)
    found = [(rows[int(seq)].passage(), float(score) / float(bound)) for seq, score in zip(seqs, scores, strict=True)]
    others = list_passages(
        sidr, filter=search.get("filter"), limit=request.k - len(found), without={p.id for p, _ in found}
    )
    return found + [(passage, 0.0) for passage in others]
