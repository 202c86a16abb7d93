"""nDCG@10 of every kind of search on judged sets, beside BM25 in the same run; reported, never used to choose."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.data import JudgedSet, judged_set
from benchmarks.peers import BM25S_SETTINGS, Bm25
from benchmarks.results import Cell, Result, Table
from benchmarks.timing import clocked
from sidr_rag import SiDR

_SETS = ("nq-utd", "covidqa-passages", "nfcorpus", "scifact")
_DEPTH = 10
_M = 100
_BM25 = {"bm25s, k1 = 0.9, b = 0.4": (0.9, 0.4), "bm25s, k1 = 1.5, b = 0.75 (its defaults)": (1.5, 0.75)}
# Each search by name: the store's weighting, and the arguments of SiDR.search.
_SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "beta, binary": ("binary", {}),
    "beta, levelled (the default)": ("default", {}),
    "late, binary beta, then V_theta (the paper's)": ("binary", {"rerank": _M, "reranker": "theta"}),
    "late, levelled beta, then V_theta": ("default", {"rerank": _M, "reranker": "theta"}),
    "late, levelled beta, blended (the default)": ("default", {"rerank": _M, "reranker": "blend"}),
    "alpha": ("default", {"search": "alpha"}),
    "full": ("default", {"search": "full"}),
}


def main() -> None:
    """Measure the sets in turn, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=_SETS, metavar="SET", help="folders of the shared data")
    parser.add_argument("--limit-queries", type=int, help="at most so many queries of each set, evenly spaced")
    arguments = parser.parse_args()
    command = "python -m benchmarks.quality"
    if tuple(arguments.sets) != _SETS:
        command += " --sets " + " ".join(arguments.sets)
    if arguments.limit_queries is not None:
        command += f" --limit-queries {arguments.limit_queries}"
    measured: dict[str, dict[str, Any]] = {}
    for name in arguments.sets:
        data = judged_set(name, limit_queries=arguments.limit_queries)
        print(f"{name}: {len(data.ids):,} passages, {len(data.queries):,} queries", flush=True)
        measured[name] = _measure(data)
    _result(measured, command).write()


def _measure(data: JudgedSet) -> dict[str, Any]:
    queries = list(data.queries.values())
    scores: dict[str, float] = {}
    for name, (k1, b) in _BM25.items():
        bm25 = Bm25(data.contents, k1=k1, b=b)
        found = [bm25.ranking(words, _DEPTH) for words in bm25.words(queries)]
        scores[name] = _ndcg(data, [[data.ids[row] for row in rows] for rows in found])
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"  # on disk, so that the two weightings share the embeddings
        made = SiDR.from_texts(data.texts, ids=data.ids, titles=data.titles, path=store)
        with made:
            _, embedding = clocked(made.embed)
        for weighting in ("binary", "default"):
            with SiDR.open(store, weighting=weighting) as sidr:
                for name, (of, arguments) in _SEARCHES.items():
                    if of == weighting:
                        results = sidr.search(queries, k=_DEPTH, **arguments)
                        scores[name] = _ndcg(data, [[r.passage.id for r in found] for found in results])
    return {"passages": len(data.ids), "queries": len(queries), "embedding": asdict(embedding), "scores": scores}


def _ndcg(data: JudgedSet, rankings: Sequence[Sequence[str]]) -> float:
    """The mean over all judged queries; a query that finds nothing counts 0."""
    import ir_measures

    # Places for scores, so that every system's own order of equal scores is kept.
    run = {
        query_id: {passage_id: float(-place) for place, passage_id in enumerate(ranking)}
        for query_id, ranking in zip(data.queries, rankings, strict=True)
    }
    measure = ir_measures.nDCG @ _DEPTH
    values = {m.query_id: m.value for m in ir_measures.iter_calc([measure], data.qrels, run)}
    return sum(values.values()) / len(data.queries)


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def _result(measured: dict[str, dict[str, Any]], command: str) -> Result:
    result = Result(
        "quality",
        "Quality",
        [
            "nDCG@10 by ir_measures over all queries with a test judgement; a query that finds nothing counts 0; equal "
            "scores stay in each system's own order. Title and text, one space between, for every system.",
            "The bundled default model with its own constants. Binary: one level, w = V_theta(q) (top 64 and own "
            f"tokens), the paper's beta search. Late: the best m = {_M} of beta. Full: V_theta of every passage (top "
            "256 and own tokens, long passages in windows). Alpha: the query's bag against V_theta of passages.",
            f"Passages are embedded by torch, with {_torch_threads()} of its threads.",
            "The figures are reported; nothing was chosen by them.",
        ],
        [BM25S_SETTINGS],
        ["numpy", "torch", "bm25s", "PyStemmer", "ir_measures", "pytrec_eval-terrier"],
        command,
        raw=measured,
    )
    rows: list[list[Cell]] = []
    for name in (*_BM25, *_SEARCHES):
        figures = [float(of_set["scores"][name]) for of_set in measured.values()]
        rows.append([name, *figures, sum(figures) / len(figures)])
    result.tables.append(Table("nDCG@10", ("system", *measured, "mean"), rows))
    facts: list[list[Cell]] = [
        [name, m["passages"], m["queries"], *(m["passages"] / m["embedding"][clock] for clock in ("cpu", "wall"))]
        for name, m in measured.items()
    ]
    columns = ("set", "passages", "queries", "passages embedded per CPU second", "passages embedded per second")
    result.tables.append(Table("Sets", columns, facts))
    return result


if __name__ == "__main__":
    main()
