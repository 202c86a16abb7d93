"""Every search on one dataset, judged alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.eval.answers import AnswerJudge
from sidr_rag.eval.bm25 import StemmedWords
from sidr_rag.eval.corpus import Corpus
from sidr_rag.eval.costs import MeteredEncoder
from sidr_rag.eval.datasets import Dataset
from sidr_rag.eval.measures import check_measures, default_measures, depth_of, measure
from sidr_rag.eval.report import Report, Result, check_pairs
from sidr_rag.eval.running import run_search
from sidr_rag.eval.searches import Bm25Search, EngineSearch, PairSearch, Search, check_search, named_searches
from sidr_rag.eval.trec import Run, check_ids

Searches = Sequence[str] | Mapping[str, Search]


def evaluate(
    dataset: Dataset,
    searches: Searches = ("beta", "late", "bm25"),
    *,
    rerank: Sequence[int] = (100,),
    measures: Sequence[str] | None = None,
    model: str | Path | Encoder = "default",
    device: str = "auto",
    store: str | Path | None = None,
    runs: Mapping[str, Run] | None = None,
    compare: Sequence[tuple[str, str]] = (),
    plain_ids: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
) -> Report:
    """Index a dataset's passages, run searches over all its queries, and measure them.

    Args:
        dataset: from `load_beir`, `load_dpr` or made by hand.
        searches: names as `named_searches` knows them, or searches by a name of one's own.
        rerank: m, for the names that re-rank and do not say how many.
        measures: as ir-measures names them, and `Success(answers)@k`; None for `default_measures`.
        model: "default", a folder, a hub name, or a loaded encoder.
        device: "auto", "cpu" or "cuda", for a model that is loaded here.
        store: a folder that keeps the index and the embeddings, so that a later evaluation of the same passages starts
            with them; None uses a temporary one.
        runs: further runs to measure beside the searches, by name.
        compare: pairs of searches or runs for the bootstrap test, over all measures.
        plain_ids: refuse ids that a TREC file cannot hold, before anything is indexed.
        on_step: is told what is being done.

    Returns:
        The report; its runs have as many passages as the measures look at, 100 by default.

    Raises:
        FileReadError: if the dataset's passages are malformed, or two have one id.
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        MissingExtraError: if ir-measures, bm25s or PyStemmer is needed and absent.
    """
    chosen = _chosen(searches, rerank)
    others = dict(runs or {})
    _check_names(chosen, others, compare)
    names = check_measures(default_measures(dataset) if measures is None else measures, dataset)
    if not names or not dataset.queries:
        raise InvalidInputError(
            f"{dataset.name} ({dataset.split}) has nothing to measure: no judgements and no answers"
        )
    if any(isinstance(s, Bm25Search) for s in chosen.values()):
        StemmedWords()  # says now, not after hours of work, that a package is missing
    if plain_ids:
        check_ids("query id", dataset.queries)
    encoder = MeteredEncoder(model if not isinstance(model, (str, Path)) else load_encoder(model, device=device))
    place: AbstractContextManager[str | Path]
    place = tempfile.TemporaryDirectory(prefix="sidr-eval-") if store is None else nullcontext(store)
    with place as where:
        folder = Path(where) / "store" if store is None else Path(where)
        on_step(f"indexing {dataset.name}")
        weightings = [s.weighting for s in chosen.values() if isinstance(s, EngineSearch)]
        check_id = (lambda i: check_ids("passage id", [i])) if plain_ids else (lambda _: None)
        with Corpus(dataset, encoder, folder, weightings, check_id) as corpus:
            judge = AnswerJudge(corpus.texts)
            results = _searched(corpus, chosen, depth_of(names), on_step)
            for name, run in others.items():
                results[name] = Result(run, {})
            on_step("measuring")
            measured = {
                name: replace(results[name], values=measure(results[name].run, dataset, names, judge))
                for name in (*chosen, *others)
            }
            report = Report(
                dataset.name,
                dataset.split,
                encoder.config.name,
                corpus.n,
                len(dataset.queries),
                _lost(dataset, corpus),
                names,
                measured,
                corpus.indexing,
                encoder.reading.passages,
                encoder.reading.passage_seconds,
            )
    return replace(report, comparisons=report.compare(compare)) if compare else report


def _chosen(searches: Searches, rerank: Sequence[int]) -> dict[str, Search]:
    if isinstance(searches, Mapping):
        if not searches:
            raise InvalidInputError("searches={} is empty; give at least one")
        return {name: check_search(search) for name, search in searches.items()}
    return named_searches(searches, rerank=rerank)


def _check_names(searches: Mapping[str, Search], runs: Mapping[str, Run], compare: Sequence[tuple[str, str]]) -> None:
    twice = sorted(set(searches) & set(runs))
    if twice:
        raise InvalidInputError(f"runs: {twice[0]!r} is the name of a search, too; choose another")
    check_pairs(compare, {**searches, **runs})


def _searched(
    corpus: Corpus, searches: Mapping[str, Search], depth: int, on_step: Callable[[str], None]
) -> dict[str, Result]:
    """Results by name; run in an order that opens and embeds as little as can be."""
    results = {}
    for name in sorted(searches, key=lambda name: _order(searches[name])):
        step = f"{corpus.dataset.name}: {name}"
        on_step(step)
        queries = corpus.dataset.queries
        tell = partial(_tell, on_step, step, len(queries))
        run, cost = run_search(corpus, searches[name], queries, depth, tell)
        results[name] = Result(run, {}, cost)
    return results


def _tell(on_step: Callable[[str], None], step: str, n_queries: int, done: int) -> None:
    on_step(f"{step}, {done:,} of {n_queries:,} queries")


def _order(search: Search) -> tuple[int, str]:
    """Whole-corpus searches first, as they embed best; then one weighting after another."""
    if isinstance(search, EngineSearch):
        return (0 if search.whole_corpus else 2), repr(search.weighting)
    return (1 if isinstance(search, PairSearch) else 3), ""


def _lost(dataset: Dataset, corpus: Corpus) -> int:
    relevant = {i for judged in dataset.qrels.values() for i, grade in judged.items() if grade > 0}
    return len(relevant) - len(corpus.passages(sorted(relevant)))
