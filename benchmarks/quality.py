"""nDCG@10 of every kind of search on judged sets, beside BM25 in the same run; reported, never used to choose."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers import BM25S_SETTINGS
from benchmarks.results import Cell, Result, Table
from sidr_rag.eval import Bm25Search, Dataset, EngineSearch, evaluate, load_beir

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "eval"
_SETS = ("nq-utd", "covidqa-passages", "nfcorpus", "scifact")
_MEASURE = "nDCG@10"
_M = 100
_BM25 = {
    "bm25s, k1 = 0.9, b = 0.4": Bm25Search(k1=0.9, b=0.4),
    "bm25s, k1 = 1.5, b = 0.75 (its defaults)": Bm25Search(k1=1.5, b=0.75),
}
_SEARCHES = {
    "beta, binary": EngineSearch("binary"),
    "beta, levelled (the default)": EngineSearch(),
    "late, binary beta, then V_theta (the paper's)": EngineSearch("binary", rerank=_M, reranker="theta"),
    "late, levelled beta, then V_theta": EngineSearch(rerank=_M, reranker="theta"),
    "late, levelled beta, blended (the default)": EngineSearch(rerank=_M, reranker="blend"),
    "alpha": EngineSearch(search="alpha"),
    "full": EngineSearch(search="full"),
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
        data = load_beir(_SHARED / name)
        if arguments.limit_queries is not None:
            data = data.limited(arguments.limit_queries)
        measured[name] = _measure(data)
    _result(measured, command).write()


def _measure(data: Dataset) -> dict[str, Any]:
    report = evaluate(data, {**_BM25, **_SEARCHES}, measures=[_MEASURE], on_step=lambda step: print(step, flush=True))
    return {
        "passages": report.n_passages,
        "queries": report.n_queries,
        "embedding": asdict(report.encoding),
        "scores": {name: result.mean(_MEASURE) for name, result in report.results.items()},
    }


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
