"""An experiment on table 1: which search is ahead, by how many words a question and its passage have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.accuracy import SETS
from benchmarks.paper.figures import Figures
from benchmarks.paper.rows import Claim, PaperTable, Row, Value
from benchmarks.paper.setup import DENSE_NAME, SUCCESS, Setup
from sidr_rag.eval import Bm25Search, Dataset, EngineSearch
from sidr_rag.eval.searches import Search
from sidr_rag.search.weighting import idf
from sidr_rag.text.tokenizer import BagTokenizer

_SHARE, _DENSE = "words in common", "DPR"
_QUARTERS = ("fewest", "fewer", "more", "most")
_SEARCHES: dict[str, Search] = {
    "SiDR full": EngineSearch("binary", search="full"),
    "BM25": Bm25Search(),
    "SiDR beta": EngineSearch("binary"),
    "SiDR beta (m=20)": EngineSearch("binary", rerank=20, reranker="theta"),
    "SiDR beta (m=100)": EngineSearch("binary", rerank=100, reranker="theta"),
}


def empty() -> PaperTable:
    """The rows without figures."""
    return _table({})


def run(setup: Setup) -> PaperTable:
    """Measure the sets in turn."""

    def make(name: str) -> Figures:
        data = setup.dataset(name)
        dense = setup.dense(data)
        report = setup.report(data, _SEARCHES, SUCCESS[:1], {_DENSE: dense.run()})
        shares = words_in_common(data, setup.encoder.tokenizer)
        quarters = np.array_split(np.argsort(shares, kind="stable"), len(_QUARTERS))

        def means(values: NDArray[np.float64]) -> dict[str, float]:
            return {q: float(values[part].mean()) for q, part in zip(_QUARTERS, quarters, strict=True)}

        found = {search: means(np.asarray(r.values[SUCCESS[0]])) for search, r in report.results.items()}
        return Figures(report.n_passages, report.n_queries, {**found, _SHARE: means(shares)}, {})

    found, whole = setup.measured("overlap", SETS, make)
    table = _table(found)
    table.small, table.whole = setup.small, whole
    return table


def words_in_common(data: Dataset, tokenizer: BagTokenizer) -> NDArray[np.float64]:
    """The share, f64[queries], of each question's tokens that its judged passage holds: the best one's, by idf."""
    passages = list(data.passages())
    counts = tokenizer.counts([p.content for p in passages])
    rarity = idf(np.bincount(counts.dims, minlength=counts.dim), len(passages))
    bags = {p.id: counts.dims[a:b] for p, a, b in zip(passages, counts.indptr, counts.indptr[1:], strict=False)}
    asked = tokenizer.counts(list(data.queries.values()))
    shares = np.zeros(len(data.queries))
    for i, query_id in enumerate(data.queries):
        dims = asked.dims[asked.indptr[i] : asked.indptr[i + 1]]
        whole = rarity[dims].sum()
        for passage_id, grade in data.qrels[query_id].items():
            if grade > 0 and passage_id in bags and whole > 0:
                held = rarity[dims[np.isin(dims, bags[passage_id])]].sum()
                shares[i] = max(shares[i], held / whole)
    return shares


def _table(found: dict[str, Figures]) -> PaperTable:
    rows = []
    for name in (_SHARE, _DENSE, *_SEARCHES):
        ours: dict[str, Value] = {s: f.percents(name, _QUARTERS) for s, f in found.items()}
        note = {_SHARE: "per cent of the question's idf", _DENSE: f"{DENSE_NAME} in its place"}.get(name, "")
        rows.append(Row(name, {}, ours, "", note))
    return PaperTable(
        "overlap",
        "Experiment: words in common",
        [
            "Why table 1 agrees on one set and not on another. The questions of each set are sorted by the share of "
            "their tokens, weighed by idf, that the judged passage holds, and cut into four quarters, "
            f"{' / '.join(_QUARTERS)}; top-1 accuracy in each. The searches are those of table 1.",
        ],
        rows,
        [
            _claim(found, "SiDR full", "SiDR beta", (49.1, 39.8), 0),
            _claim(found, "SiDR beta (m=20)", "SiDR beta", (49.5, 39.8), 0),
            _claim(found, "SiDR full", "SiDR beta", (49.1, 39.8), -1),
            _claim(found, "SiDR beta (m=20)", "SiDR beta", (49.5, 39.8), -1),
        ],
    )


def _claim(found: dict[str, Figures], a: str, b: str, paper: tuple[float, float], quarter: int) -> Claim:
    name = _QUARTERS[quarter]
    ours = {s: (f.percent(a, name), f.percent(b, name)) for s, f in found.items()}
    return Claim(f"{a} is ahead of {b}, where question and passage share {name} words", paper, ours, _READING)


_READING = (
    "Where question and passage share most of their words, words alone decide, and V_theta of a passage can only blur "
    "them."
)
