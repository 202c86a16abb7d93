"""Late parametric search: quality, cost and time of its combinations on judged sets, and the speed of embedding.

Stores and embeddings are kept in the folder: embedding the four sets once takes about half an hour of one core. Set
OMP_NUM_THREADS=1, as for `quality`. `--split dev` measures the sets that have training or dev judgements: what the
defaults were chosen by.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.late_speed import Speeds, measure_speed
from benchmarks.options import make_parser
from benchmarks.peers import BM25S_SETTINGS
from benchmarks.results import Cell, Must, Result, Table
from sidr_rag import SiDR
from sidr_rag.costs import Costs
from sidr_rag.eval import Dataset, load_beir, measure
from sidr_rag.rerank import BiEncoder, Blend
from sidr_rag.types import SearchResult

_SHARED = Path(__file__).resolve().parents[1].parent / "shared"
_SETS = ("scifact", "nfcorpus", "squad-dev", "covidqa-passages")
_DEV = {"scifact": "train", "nfcorpus": "dev", "multispanqa-nq": "dev"}
_MEASURE = "nDCG@10"
_QUERIES = 1000
_TIMED = 40
_AT_ONCE = 64
_SIZES = (5, 10, 20, 100)


@dataclass(frozen=True)
class Measured:
    """One search on one set.

    Attributes:
        score: nDCG@10.
        texts: queries and passages that an encoder reads for all queries, every candidate counted (the paper's cost).
        share: `texts` as a part of the corpus.
        distinct: passages among them that are not read twice.
        cpu_ms: milliseconds of CPU of one query, embeddings kept; the median.
    """

    score: float
    texts: int
    share: float
    distinct: int
    cpu_ms: float


def searches(minilm: BiEncoder, *, dev: bool) -> dict[str, dict[str, Any]]:
    """The arguments of every search, by its name."""
    found: dict[str, dict[str, Any]] = {
        "beta": {},
        "lexical": {"first_stage": "lexical"},
        "BM25": {"first_stage": "bm25"},
        "beta + BM25, fused": {"first_stage": "sidr+bm25"},
    }
    for m in _SIZES:
        found[f"late, the model's way, m = {m}"] = {"rerank": m}
    found["late, V_theta alone (the paper's), m = 100"] = {"rerank": 100, "reranker": "theta"}
    found["BM25 + late, m = 100"] = {"rerank": 100, "first_stage": "bm25"}
    found["fused + late, m = 100"] = {"rerank": 100, "first_stage": "sidr+bm25"}
    found["beta + MiniLM dense alone, m = 100"] = {"rerank": 100, "reranker": minilm}
    for m in _SIZES if dev else (20, 100):
        found[f"beta + MiniLM dense, blended, m = {m}"] = {"rerank": m, "reranker": Blend(minilm, 0.5)}
    found["BM25 + MiniLM dense, blended, m = 100"] = {
        "rerank": 100,
        "first_stage": "bm25",
        "reranker": Blend(minilm, 0.5),
    }
    if dev:
        for share in (0.3, 0.5, 0.8, 0.9):
            found[f"late, V_theta, first stage's share {share}, m = 100"] = {
                "rerank": 100,
                "reranker": Blend("theta", share),
            }
        for share in (0.3, 0.7):
            found[f"beta + MiniLM dense, first stage's share {share}, m = 100"] = {
                "rerank": 100,
                "reranker": Blend(minilm, share),
            }
    else:
        found["full"] = {"search": "full"}
        found["auto, everything embedded"] = {"search": "auto"}
    return found


def main() -> None:
    """Measure speed and the sets in turn, and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--sets", nargs="+", metavar="SET", help=f"folders of the shared data; {' '.join(_SETS)}")
    parser.add_argument("--split", choices=("test", "dev"), default="test")
    parser.add_argument(
        "--limit-queries", type=int, default=_QUERIES, help="at most so many of each set, evenly spaced (%(default)s)"
    )
    parser.add_argument("--quality-only", action="store_true", help="measure no speed of embedding; writes no result")
    arguments = parser.parse_args()
    dev = arguments.split == "dev"
    names = arguments.sets or (["nq-utd"] if arguments.small else list(_DEV if dev else _SETS))
    speeds = None if arguments.quality_only else measure_speed(small=arguments.small)
    minilm = BiEncoder(_SHARED / "models" / "all-MiniLM-L6-v2")
    found: dict[str, dict[str, Measured]] = {}
    facts: list[list[Cell]] = []
    for name in names:
        split = _DEV.get(name, "dev") if dev else "test"
        data = load_beir(_SHARED / "data" / "eval" / name, split)
        data = data.limited(20 if arguments.small else arguments.limit_queries)
        chosen = searches(minilm, dev=dev)
        found[name], fact = _measure_set(data, arguments.folder / "late" / name, chosen)
        facts.append([f"{name}, {split}", *fact])
    result = _result(found, facts, speeds, f"python -m benchmarks.late{' --split dev' if dev else ''}", dev=dev)
    if arguments.small or arguments.quality_only:
        for table in result.tables:
            print(table.title, *table.rows, sep="\n")
    else:
        result.write()


def _measure_set(
    data: Dataset, folder: Path, chosen: dict[str, dict[str, Any]]
) -> tuple[dict[str, Measured], list[Cell]]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"device": "cpu", "num_threads": 1, "cache_bytes": 1 << 40}
    if not (folder / "sidr.json").exists():
        SiDR.from_passages(data.passages(), path=folder, **options).close()
    with SiDR.open(folder, **options) as sidr:
        start = time.process_time()
        with sidr.measured() as costs:
            sidr.embed(progress=_said(data.name))
        embed_ms = 1000 * (time.process_time() - start) / costs.passages if costs.passages else None
        measured = {name: _measure_search(sidr, data, arguments) for name, arguments in chosen.items()}
        for name, m in measured.items():
            print(f"{data.name:18} {name:50} {m.score:.4f} {m.share:8.1%} {m.cpu_ms:8.1f} ms", flush=True)
        info = sidr.info()
        n = len(sidr)
    fact: list[Cell] = [n, len(data.queries), embed_ms, info["embedding_bytes"] / n, info["cache_bytes"] / n]
    return measured, fact


def _said(name: str) -> Any:
    last = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 60:
            last[0] = time.monotonic()
            print(f"{name}: {done:,} of {total:,} passages embedded", flush=True)

    return progress


def _measure_search(sidr: SiDR, data: Dataset, arguments: dict[str, Any]) -> Measured:
    depth = max(10, arguments.get("rerank", 0))
    ids, texts = list(data.queries), list(data.queries.values())
    run: dict[str, list[tuple[str, float]]] = {}
    read: set[str] = set()
    with sidr.measured() as costs:
        for start in range(0, len(ids), _AT_ONCE):
            results = sidr.search(texts[start : start + _AT_ONCE], k=depth, **arguments)
            run.update(zip(ids[start : start + _AT_ONCE], map(_ranking, results), strict=True))
            read.update(r.passage.id for found in results for r in found if r.reranked)
    whole = arguments.get("search") in ("full", "auto")
    n_texts = costs.queries + (len(sidr) if whole else _read(costs))
    score = float(np.mean(measure(run, data, [_MEASURE])[_MEASURE]))
    timed = [texts[i * len(texts) // min(_TIMED, len(texts))] for i in range(min(_TIMED, len(texts)))]
    spent = []
    for text in timed:
        start_cpu = time.process_time()
        sidr.search(text, **arguments)
        spent.append(time.process_time() - start_cpu)
    distinct = len(sidr) if whole else len(read)
    return Measured(score, n_texts, n_texts / len(sidr), distinct, 1000 * float(np.median(spent)))


def _read(costs: Costs) -> int:
    """Candidates that a second stage had to have an embedding of, kept ones included: the paper's count."""
    return costs.passages + costs.cache_hits


def _ranking(results: Sequence[SearchResult]) -> list[tuple[str, float]]:
    # Places, since the scores of both stages are on one list.
    return [(r.passage.id, float(-r.rank)) for r in results[:10]]


def _result(
    found: dict[str, dict[str, Measured]], facts: list[list[Cell]], speeds: Speeds | None, command: str, *, dev: bool
) -> Result:
    result = Result(
        "late_dev" if dev else "late",
        "Late parametric search" + (", on training and dev judgements" if dev else ""),
        [
            "nDCG@10 by ir_measures; at most 1,000 queries of a set, evenly spaced. The bundled model with its own "
            "weighting; MiniLM is all-MiniLM-L6-v2, vectors kept in int8, shares of the first stage 0.5.",
            "Cost: texts that an encoder reads for all queries (queries and every candidate, as in the paper's table "
            "of costs), as a share of the corpus; embeddings that are kept save what is read twice.",
            "Time: CPU milliseconds of one query with one thread, embeddings kept; the median over 40 queries.",
            "Speed of embedding: 100 passages of 100 words, CPU seconds, medians of three interleaved rounds.",
            *(["What the defaults are chosen by."] if dev else ["Nothing was chosen by these figures."]),
        ],
        [BM25S_SETTINGS, "a BertModel of transformers with the same weights, in batches of 32"],
        ["numpy", "torch", "transformers", "bm25s", "PyStemmer", "ir_measures"],
        command,
        raw={name: {s: m.__dict__ for s, m in of_set.items()} for name, of_set in found.items()},
    )
    names = list(next(iter(found.values())))
    tables: list[tuple[str, str, bool]] = [
        ("nDCG@10", "score", True),
        ("Cost: texts read, as a share of the corpus", "share", False),
        ("CPU milliseconds of one query, embeddings kept", "cpu_ms", True),
    ]
    for title, attribute, mean in tables:
        rows: list[list[Cell]] = []
        for name in names:
            figures = [float(getattr(of_set[name], attribute)) for of_set in found.values()]
            rows.append([name, *figures, *([sum(figures) / len(figures)] if mean else [])])
        result.tables.append(Table(title, ("search", *found, *(("mean",) if mean else ())), rows))
    columns = (
        "set",
        "passages",
        "queries",
        "CPU ms to embed a passage",
        "index bytes a passage",
        "kept bytes a passage",
    )
    result.tables.append(Table("Sets", columns, facts))
    if speeds is not None:
        _add_speed(result, speeds)
    return result


def _add_speed(result: Result, speeds: Speeds) -> None:
    plain, ours = speeds.ways[0].per_second, speeds.ways[1].per_second
    rows: list[list[Cell]] = [
        [w.name, w.per_second, 100_000 / w.per_second, w.per_second / plain, 100 * w.share] for w in speeds.ways
    ]
    columns = ("way", "passages per CPU second", "ms per 100 passages", "times the first", "% of the float32 peak")
    title = (
        f"Embedding passages of {speeds.tokens:.0f} tokens; measured peaks {speeds.peak:.0f} (float32) and "
        f"{speeds.peak_bfloat16:.0f} (bfloat16) thousand million operations per CPU second"
    )
    result.tables.append(Table(title, columns, rows))
    result.musts += [
        Must("passages per second, times Hugging Face's padded forward, float32", ours / plain, 2.0, at_least=True),
        Must("re-ranking 100 passages whose embeddings are kept, CPU ms", speeds.warm_ms[0], 50.0),
        Must("the same, ms of wall clock", speeds.warm_ms[1], 50.0),
    ]


if __name__ == "__main__":
    main()
