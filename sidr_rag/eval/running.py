"""One search over all queries of a dataset: its run, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder import Encoder
from sidr_rag.eval.corpus import Corpus
from sidr_rag.eval.costs import Cost, Seconds, clocked
from sidr_rag.eval.pairs import represented_queries
from sidr_rag.eval.searches import Bm25Search, EngineSearch, PairSearch, Search
from sidr_rag.eval.trec import Run
from sidr_rag.index.passages import Row
from sidr_rag.rerank.queries import Queries
from sidr_rag.rerank.second import SecondStages
from sidr_rag.types import SearchResult

_QUERIES_AT_ONCE = 256

Ranking: TypeAlias = list[tuple[str, float]]
_Batch: TypeAlias = Callable[[list[str]], tuple[list[Ranking], int]]


def run_search(
    corpus: Corpus,
    search: Search,
    queries: Mapping[str, str],
    depth: int,
    on_done: Callable[[int], None] = lambda _: None,
) -> tuple[Run, Cost]:
    """Search for every query.

    Args:
        corpus: what is searched.
        search: how.
        queries: text by query id.
        depth: how many passages a ranking has at most.
        on_done: is told how many queries have been searched for.

    Returns:
        The run, with scores that never rise within a query, and its cost.
    """
    corpus.encoder.forget_recent()  # a search's cost does not depend on the one before it
    before = corpus.encoder.reading
    prepared, batch = _prepared(corpus, search, depth)
    run: dict[str, Ranking] = {}
    spent, passages = prepared, 0
    for ids in _chunks(list(queries)):
        (rankings, read), seconds = clocked(lambda ids=ids: batch([queries[i] for i in ids]))  # type: ignore[misc]
        run.update(zip(ids, rankings, strict=True))
        spent, passages = spent + seconds, passages + read
        on_done(len(run))
    if _embeds_all(search):
        passages = corpus.n
    after = corpus.encoder.reading
    encoding = after.passage_seconds - before.passage_seconds
    n_queries = after.queries - before.queries
    share = (n_queries + passages) / corpus.n if corpus.n else 0.0
    return run, Cost(n_queries, passages, share, after.passages - before.passages, spent - encoding, encoding)


def _prepared(corpus: Corpus, search: Search, depth: int) -> tuple[Seconds, _Batch]:
    """A function that searches for some queries, and the time that embedding the corpus took, if it had to be."""
    if isinstance(search, EngineSearch):
        sidr = corpus.sidr(search.weighting)
        spent = clocked(sidr.embed)[1] if search.whole_corpus else Seconds()
        return spent, lambda queries: _engine(corpus, search, queries, depth)
    if isinstance(search, PairSearch):
        spent = clocked(lambda: corpus.pair_index(search.passage_repr))[1]
        return spent, lambda queries: _pair(corpus, search, queries, depth)
    corpus.bm25(search)
    return Seconds(), lambda queries: _bm25(corpus, search, queries, depth)


def _engine(corpus: Corpus, search: EngineSearch, queries: list[str], depth: int) -> tuple[list[Ranking], int]:
    found: list[list[SearchResult]] = corpus.sidr(search.weighting).search(
        queries,
        k=max(depth, search.rerank),
        search=search.search,
        rerank=search.rerank,
        reranker=search.reranker,
        query_repr=search.query_repr,
        first_stage=search.first_stage,
        max_active_dims=search.max_active_dims,
    )
    read = sum(result.reranked for results in found for result in results)
    rankings = []
    for results in found:
        head = [(r.passage.id, r.score) for r in results if r.reranked]
        rest = [(r.passage.id, r.score) for r in results if not r.reranked]
        rankings.append(_joined(head, rest)[:depth])
    return rankings, read


def _pair(corpus: Corpus, search: PairSearch, queries: list[str], depth: int) -> tuple[list[Ranking], int]:
    index = corpus.pair_index(search.passage_repr)
    vectors = represented_queries(search.query_repr, queries, corpus.encoder)
    return [_named(corpus, *index.search(row, depth)) for row in vectors], 0


def _bm25(corpus: Corpus, search: Bm25Search, queries: list[str], depth: int) -> tuple[list[Ranking], int]:
    index = corpus.bm25(search)
    first = [_named(corpus, *index.search(query, max(depth, search.rerank))) for query in queries]
    if not search.rerank:
        return first, 0
    encoder = cast(Encoder, corpus.encoder)
    stages = SecondStages(encoder, corpus.embedder)
    tokens = stages.compares_tokens(search.reranker)
    asked = Queries(queries, encoder, encoder.tokenizer.vocabulary.dim, "theta", None, tokens=tokens)
    score = stages.scoring(
        search.reranker,
        asked,
        lambda theta: corpus.weigh(search.weighting, theta, asked.bags),
        lambda dims: corpus.idf(search.weighting, dims),
    )
    rankings, read = [], 0
    for i, ranking in enumerate(first):
        head, rest = ranking[: search.rerank], ranking[search.rerank :]
        read += len(head)
        values = np.array([value for _, value in head], np.float32)
        second = score(i, _rows(corpus, head), values) if head else np.empty(0)
        order = np.lexsort((np.arange(len(head)), -second)).tolist()
        rankings.append(_joined([(head[j][0], float(second[j])) for j in order], rest)[:depth])
    return rankings, read


def _rows(corpus: Corpus, head: Ranking) -> list[Row]:
    stored = corpus.passages([passage_id for passage_id, _ in head])
    found = [stored[passage_id] for passage_id, _ in head]
    return [Row(0, p.id, p.title, p.text, json.dumps(p.metadata)) for p in found]


def _joined(head: Ranking, rest: Ranking) -> Ranking:
    """Re-ranked passages and those after them, whose scores are of another kind, on one falling scale."""
    if head and rest and rest[0][1] > head[-1][1]:
        drop = rest[0][1] - head[-1][1] + 1.0
        rest = [(passage_id, score - drop) for passage_id, score in rest]
    return head + rest


def _named(corpus: Corpus, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> Ranking:
    ids = corpus.ids
    return [(ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]


def _embeds_all(search: Search) -> bool:
    if isinstance(search, PairSearch):
        return search.passage_repr != "bot"
    return isinstance(search, EngineSearch) and search.whole_corpus


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[i : i + _QUERIES_AT_ONCE] for i in range(0, len(ids), _QUERIES_AT_ONCE))
