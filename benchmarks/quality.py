"""Every kind of search on judged sets, beside BM25 in the same run; reported, never used to choose.

What a set gave is kept in the folder, so that a run that was cut off is taken up where it stopped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.options import make_parser
from benchmarks.peers import BM25S_SETTINGS
from benchmarks.results import Cell, Result, Table
from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.eval import Bm25Search, Dataset, EngineSearch, evaluate, load_beir
from sidr_rag.eval.searches import Search

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "eval"
_SETS = (
    *("scifact", "nfcorpus", "squad-dev", "multispanqa-nq"),
    *("covidqa-passages", "nq-utd", "cranfield", "vaswani"),
)
_MEASURE, _SUCCESS = "nDCG@10", "Success(answers)@1"
_QUERIES = 1000
_M, _FEW = 100, 20
_BM25 = {
    "bm25s, k1 = 0.9, b = 0.4": Bm25Search(k1=0.9, b=0.4),
    "bm25s, k1 = 1.5, b = 0.75 (its defaults)": Bm25Search(k1=1.5, b=0.75),
}
_SEARCHES: dict[str, Search] = {
    "bag-of-tokens overlap": EngineSearch("binary", query_repr="bot"),
    "lexical": EngineSearch(first_stage="lexical"),
    "beta, binary": EngineSearch("binary"),
    "beta, levelled (the default)": EngineSearch(),
    f"late, blended (the default), m = {_FEW}": EngineSearch(rerank=_FEW),
    f"late, blended (the default), m = {_M}": EngineSearch(rerank=_M),
    f"late, both heads, m = {_FEW}": EngineSearch(rerank=_FEW, reranker="both"),
    f"late, both heads, m = {_M}": EngineSearch(rerank=_M, reranker="both"),
    f"late, tokens alone, m = {_M}": EngineSearch(rerank=_M, reranker="maxsim"),
    f"late, dense head alone, m = {_M}": EngineSearch(rerank=_M, reranker="dense"),
    f"late, V_theta alone, m = {_M}": EngineSearch(rerank=_M, reranker="theta"),
    f"late, binary beta, then V_theta (the paper's), m = {_M}": EngineSearch("binary", rerank=_M, reranker="theta"),
    f"BM25, then late blended, m = {_M}": Bm25Search(rerank=_M),
    "alpha": EngineSearch(search="alpha"),
    "full": EngineSearch(search="full"),
    "full, binary (the paper's)": EngineSearch("binary", search="full"),
}


def main() -> None:
    """Measure the sets in turn, and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", help="measure only these folders of the shared data; writes no result"
    )
    parser.add_argument(
        "--limit-queries", type=int, default=_QUERIES, help="at most so many of each set, evenly spaced (%(default)s)"
    )
    parser.add_argument("--model", default="default", help="the bundled one, or a folder (%(default)s)")
    parser.add_argument("--again", action="store_true", help="measure anew what an earlier run has measured")
    arguments = parser.parse_args()
    limit = 20 if arguments.small else arguments.limit_queries
    encoder = load_encoder(arguments.model, device="cpu", dtype="auto")
    command = "python -m benchmarks.quality"
    if limit != _QUERIES:
        command += f" --limit-queries {limit}"
    measured: dict[str, dict[str, Any]] = {}
    for name in arguments.sets or (["nq-utd"] if arguments.small else _SETS):
        kept = arguments.folder / "quality" / f"{name}-{limit}-{encoder.fingerprint[:16]}.json"
        if arguments.again or not kept.exists():
            found = _measure(load_beir(_SHARED / name).limited(limit), encoder, arguments.folder / "paper" / name)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found), encoding="utf-8")
        measured[name] = json.loads(kept.read_text(encoding="utf-8"))
    result = _result(measured, command, limit, encoder.config.rerank_blend or 0.0)
    if arguments.small or arguments.sets or arguments.model != "default":
        result.show()
    else:
        result.write()


def _measure(data: Dataset, encoder: Encoder, store: Path) -> dict[str, Any]:
    """What a set gives; index and embeddings are kept, and `benchmarks.paper` takes them up from there."""
    store.parent.mkdir(parents=True, exist_ok=True)
    report = evaluate(
        data,
        {**_BM25, **_SEARCHES},
        measures=[_MEASURE, *([_SUCCESS] if data.answers else [])],
        model=encoder,
        store=store,
        on_step=lambda step: print(step, flush=True),
    )
    return {
        "passages": report.n_passages,
        "queries": report.n_queries,
        "scores": {name: result.mean(_MEASURE) for name, result in report.results.items()},
        "success": {name: result.mean(_SUCCESS) for name, result in report.results.items()} if data.answers else {},
    }


def _result(measured: dict[str, dict[str, Any]], command: str, limit: int, blend: float) -> Result:
    result = Result(
        "quality",
        "Quality",
        [
            f"nDCG@10 by ir_measures over at most {limit:,} queries of a set with a test judgement, evenly spaced; a "
            "query that finds nothing counts 0; equal scores stay in each system's own order. Title and text, one "
            "space between, for every system.",
            "The model with its own constants. Binary: one level, w = V_theta(q) (its largest and the query's own "
            "tokens), the paper's beta search. Lexical: beta with the query's own words alone, no encoder. Late: the "
            "best m of beta by both heads (the dense one and V_theta, half each) and by tokens (MaxSim), half each, "
            f"z-scores blended with {blend / 2} of the first stage's; both heads: without tokens, {blend} of the "
            "first. Full: V_theta of every passage (long ones in windows) against the query as beta weighs it. Alpha: "
            "the query's bag, weighed, against V_theta of passages. The paper's: V_theta(q) as it is.",
            "Texts are read by torch, in bfloat16 where it and the processor multiply it.",
            "Success@1: a passage that holds an answer string (DPR's matching) comes first; of the sets with answers.",
            "The figures are reported; nothing was chosen by them.",
        ],
        [BM25S_SETTINGS],
        ["numpy", "torch", "bm25s", "PyStemmer", "ir_measures", "pytrec_eval-terrier"],
        command,
        raw=measured,
    )
    for title, kind in (("nDCG@10", "scores"), ("Success@1", "success")):
        having = {name: m[kind] for name, m in measured.items() if m[kind]}
        if not having:
            continue
        rows: list[list[Cell]] = []
        for name in (*_BM25, *_SEARCHES):
            figures = [float(of_set[name]) for of_set in having.values()]
            rows.append([name, *figures, sum(figures) / max(1, len(figures))])
        result.tables.append(Table(title, ("search", *having, "mean"), rows))
    facts: list[list[Cell]] = [[name, m["passages"], m["queries"]] for name, m in measured.items()]
    result.tables.append(Table("Sets", ("set", "passages", "queries"), facts))
    return result


if __name__ == "__main__":
    main()
