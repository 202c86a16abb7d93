"""How long one question takes on one core over 100,000 passages, with the query vector given and from the start."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import ONE_CORE, run_child
from benchmarks.data import cut_passages, few_passages, few_questions, questions
from benchmarks.options import make_parser
from benchmarks.peers import BM25S_SETTINGS, Bm25, ScipyCsr
from benchmarks.results import Must, Result, Table
from benchmarks.timing import interleaved_queries
from sidr_rag.index.bot_index import BotIndex

_N_PASSAGES = 100_000
_N_QUERIES = 200
_SMALL = (2_000, 10)
_K = 10
_LEVELLED, _BINARY = "sidr, levelled, compiled", "sidr, binary, compiled"


def main() -> None:
    """Measure in a child that has one thread for everything, and write the result."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--passages", type=int, help=f"({_N_PASSAGES})")
    parser.add_argument("--queries", type=int, help=f"({_N_QUERIES})")
    parser.add_argument("--child", metavar="FILE", help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.child:
        given = json.loads(Path(arguments.child).read_text(encoding="utf-8"))
        print(json.dumps(_measure(given["passages"], given["queries"], arguments.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.json"
        n, n_queries = arguments.passages or _N_PASSAGES, arguments.queries or _N_QUERIES
        if arguments.small:
            n, n_queries = _SMALL
            given = {"passages": few_passages(n), "queries": few_questions(n_queries)}
        else:
            given = {"passages": cut_passages(n), "queries": questions(n_queries)}
        file.write_text(json.dumps(given), encoding="utf-8")
        child = ["-m", "benchmarks.search_speed", "--child", str(file), "--rounds", str(arguments.rounds)]
        measured = run_child(child, ONE_CORE)
    result = _result(measured, n, n_queries, arguments.rounds)
    result.show() if arguments.small else result.write()


def _result(measured: dict[str, Any], n: int, n_queries: int, rounds: int) -> Result:
    result = Result(
        "search_speed",
        "Search speed",
        [
            f"{n:,} real passages of about 100 words (the shared training data's distinct texts cut at 100 words, a "
            f"last piece of at least 80, evenly spaced over all of them), in memory, {measured['segments']} segments; "
            f"{n_queries} real questions of the training pairs, evenly spaced; top {_K}; one query at a time, one "
            "thread for everything.",
            f"{rounds} rounds in which the methods take turns; for each query the median over rounds, of CPU "
            "milliseconds (and of milliseconds passed); the table gives median, mean and 95th percentile over queries.",
            f"The default model's query vectors: {measured['active']:.0f} active dimensions on average (top 64 and own "
            "tokens). Search time begins with V_theta(q) and the query's bag, and ends with ids and scores: levelled "
            "includes blending and idf, the exact top k and the order; it leaves out encoding and fetching passages.",
            "scipy searches the same binary matrix with the same vectors, and finds the same best scores (checked). "
            "bm25s gets the question's words tokenized and stemmed already.",
        ],
        [BM25S_SETTINGS + ", k1 = 1.5, b = 0.75", "scipy CSR product and argpartition"],
        ["numpy", "numba", "scipy", "bm25s", "PyStemmer", "tokenizers"],
        "python -m benchmarks.search_speed",
        raw=measured,
    )
    rows = []
    for name, times in measured["times"].items():
        cpu, wall = np.array(times["cpu"]), np.array(times["wall"])
        figures = [np.median(cpu), cpu.mean(), np.percentile(cpu, 95), np.median(wall), np.percentile(wall, 95)]
        rows.append([name, *(float(f) for f in figures)])
    columns = ("method", "CPU ms, median", "CPU ms, mean", "CPU ms, 95 %", "passed ms, median", "passed ms, 95 %")
    result.tables.append(Table("One query", columns, rows))
    result.musts = [
        Must(f"{name}, CPU ms, median", float(np.median(measured["times"][name]["cpu"])), 5.0)
        for name in (_LEVELLED, _BINARY)
    ]
    return result


# In the child


def _measure(texts: list[str], queries: list[str], rounds: int) -> dict[str, Any]:
    from sidr_rag.encoder import load_encoder
    from sidr_rag.engine import SiDR
    from sidr_rag.index.store import Store
    from sidr_rag.options import new_settings, resolve_weighting
    from sidr_rag.search.searcher import KernelChoice, SearchPool, search_index
    from sidr_rag.search.weighting import BINARY, weigh_queries
    from sidr_rag.types import SparseVectors

    encoder = load_encoder()
    store = Store.in_memory(new_settings("default", encoder), encoder.tokenizer)
    weighting = resolve_weighting("default", encoder)
    sidr = SiDR(store, encoder, weighting, num_threads=1, kernel="numba")
    sidr.add(texts)
    index = store.current()
    pool = SearchPool(1)
    theta = [encoder.encode_queries([query]) for query in queries]
    own = [encoder.encode_queries([query], representation="bot") for query in queries]

    def levelled(kernel: KernelChoice) -> Callable[[int], object]:
        def search(i: int) -> object:
            weights = weigh_queries(theta[i], own[i], weighting, index.df, index.n_live)
            return search_index(index, weights, weighting, _K, pool=pool, kernel=kernel)

        return search

    def binary(kernel: KernelChoice) -> Callable[[int], object]:
        return lambda i: search_index(index, theta[i], BINARY, _K, pool=pool, kernel=kernel)

    csr = _scipy(index)
    dense = [vectors.toarray()[0] for vectors in theta]
    together = SparseVectors.from_rows([vectors.row(0) for vectors in theta], encoder.dim)
    _check_scores(together, index, csr, dense)
    bm25 = {backend: Bm25(texts, backend=backend) for backend in ("numpy", "numba")}
    words = bm25["numpy"].words(queries)
    methods: dict[str, Callable[[int], object]] = {
        _LEVELLED: levelled("numba"),
        "sidr, levelled, NumPy": levelled("numpy"),
        _BINARY: binary("numba"),
        "sidr, binary, NumPy": binary("numpy"),
        "bm25s, numba": lambda i: bm25["numba"].search(words[i], _K),
        "bm25s, NumPy": lambda i: bm25["numpy"].search(words[i], _K),
        "scipy, binary: passages x dense query": lambda i: csr.search_dense(dense[i], _K),
        "scipy, binary: sparse query x token lists": lambda i: csr.search_sparse(together, i, _K),
        "sidr, the question encoded (NumPy) alone": lambda i: encoder.encode_queries([queries[i]]),
        "sidr.search(question), levelled, compiled": lambda i: sidr.search(queries[i], k=_K),
    }
    times = interleaved_queries(methods, len(queries), rounds)
    return {
        "segments": len(index.views),
        "active": float(np.mean(np.diff(together.indptr))),
        "times": {
            name: {"cpu": np.round(t.cpu, 4).tolist(), "wall": np.round(t.wall, 4).tolist()}
            for name, t in times.items()
        },
    }


def _scipy(index: BotIndex) -> ScipyCsr:
    levels = [view.segment.levels[0] for view in index.views]
    lengths = np.concatenate([np.diff(level.doc_indptr) for level in levels])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return ScipyCsr(indptr, np.concatenate([level.doc_dims for level in levels]), index.dim)


def _check_scores(queries: Any, index: BotIndex, csr: ScipyCsr, dense: list[Any]) -> None:
    """Refuse to time methods that do not find the same."""
    from sidr_rag.search.searcher import search_index
    from sidr_rag.search.weighting import BINARY

    for i, (_, scores) in enumerate(search_index(index, queries, BINARY, _K, kernel="numba")):
        for theirs in (csr.search_dense(dense[i], _K), csr.search_sparse(queries, i, _K)):
            if not np.allclose(scores, theirs[: len(scores)], rtol=1e-4):
                raise SystemExit(f"query {i}: scipy's best scores are not ours")


if __name__ == "__main__":
    main()
