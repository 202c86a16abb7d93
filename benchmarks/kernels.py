"""The search kernels alone: this library's beside plain accumulation, on one core, over one index state."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import ONE_CORE, ROOT, run_child
from benchmarks.corpora import FLAT_DIMS, N_QUERIES, SETS, Corpus, K, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.searchers.plain import PlainAccumulation
from benchmarks.timing import interleaved_queries
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.types import SparseVectors

_SIZES = (10_000, 100_000, 1_000_000)
_SMALL = (2_000,)
_SEGMENT_ROWS = 1 << 18
_LEVELS = (1, 2, 4)
_GAINS = (1.0, 0.35, 0.25)
_PLAIN = PlainAccumulation.label
_ONE, _THREE = "one level", "three levels"
_ONE_LENGTHS, _THREE_LENGTHS = "one level, with s(d)", "three levels, with s(d)"
_KEPT = "one level, bitmaps never left out"
_BATCH = f"a batch of {N_QUERIES}, per query: "
_WEIGHED = "default, weighed"
_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768)


def main() -> None:
    """Measure size after size, each in a child with one thread for everything, and write the result."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--passages", type=int, nargs="+", help=f"sizes ({' '.join(map(str, _SIZES))})")
    parser.add_argument("--child", type=Path, help="internal")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measure(Corpus(arguments.child), arguments.rounds)))
        return
    sizes = tuple(arguments.passages or (_SMALL if arguments.small else _SIZES))
    measured = {}
    for n in sizes:
        corpus = prepare(arguments.folder, n, small=arguments.small)
        _segments(corpus)
        child = ["-m", "benchmarks.kernels", "--child", str(corpus.folder), "--rounds", str(arguments.rounds)]
        measured[n] = run_child(child, ONE_CORE)
    command = "python -m benchmarks.kernels" + ("" if sizes == _SIZES else f" --passages {' '.join(map(str, sizes))}")
    result = _result(measured, arguments.rounds, command)
    result.show() if arguments.small else result.write()


def _result(measured: dict[int, dict[str, Any]], rounds: int, command: str) -> Result:
    result = Result(
        "kernels",
        "Search kernels",
        [
            "Passages and queries as in `one_query`, in segments of at most 262,144 passages, mapped from files. "
            f"`search_index` of one state: query vector in, top {K} positions and scores out, its Python included; "
            "no pool. Levels 1, 2, 4; s(d) as the default model has it.",
            f"{N_QUERIES} queries, one at a time; median over {rounds} rounds in which the methods take turns, then "
            "over queries, of CPU milliseconds. A batch is one call, divided by its queries. Ratios are to plain "
            "accumulation (one level, f32, 32-bit rows) in the same process.",
            "Bitmaps never left out: the same kernel without its first try, in which the frequent dimensions are left "
            "out and those passages scored again that they could lift among the best; found and scores are equal.",
            "Weights: `default` is V_theta(q) of the bundled model, 64 strongest dimensions and own tokens; `default, "
            "weighed` blends in the query's own words and multiplies by idf, as the model's search does.",
        ],
        [_PLAIN],
        ["numpy", "numba", "llvmlite"],
        command,
        raw={str(n): of_size for n, of_size in measured.items()},
    )
    for n, of_size in measured.items():
        for kind, times in of_size["times"].items():
            title = f"{n:,} passages, {kind}: {of_size['postings'][kind]:.1f} postings a passage"
            result.tables.append(_table(title, times))
        result.musts += _musts(n, {name: float(np.median(v)) for name, v in of_size["times"]["flat"].items()})
    largest = measured[max(measured)]
    curves: list[list[Cell]] = [[kind, *curve] for kind, curve in largest["weights"].items()]
    result.tables.append(
        Table(
            "Weights by rank, as shares of the query's greatest; mean over queries",
            ("query", *map(str, _RANKS)),
            curves,
        )
    )
    sizes: list[list[Cell]] = [
        [f"{n:,} passages, count >= {level}", *(b / n for b in of_size["bytes"][i])]
        for n, of_size in measured.items()
        for i, level in enumerate(_LEVELS)
    ]
    result.tables.append(Table("Bytes a passage", ("lists", "forward", "inverted"), sizes))
    return result


def _table(title: str, times: dict[str, list[float]]) -> Table:
    plain = float(np.median(times[_PLAIN]))
    rows: list[list[Cell]] = []
    for name, values in times.items():
        middle = float(np.median(values))
        rows.append([name, middle, float(np.percentile(values, 95)), middle / plain])
    return Table(title, ("method", "CPU ms, median", "CPU ms, 95 %", "to plain"), rows)


def _musts(n: int, of: dict[str, float]) -> list[Must]:
    bounds = {1_000_000: (0.55, 0.40), 100_000: (0.5, None), 10_000: (1.0, None)}
    where = f"{n:,} passages, {FLAT_DIMS} dimensions, "
    musts = []
    if n in bounds:
        must, aim = bounds[n]
        musts.append(Must(where + "one level to plain", of[_ONE] / of[_PLAIN], must, aim=aim))
    if n >= 1_000_000:
        musts.append(Must(where + "three levels to one", of[_THREE] / of[_ONE], 1.5, aim=1.3))
        musts.append(Must(where + "batch, a query to plain", of[_BATCH + _ONE] / of[_PLAIN], 0.3, aim=0.15))
    return musts


def _place(corpus: Corpus) -> Path:
    """Where the corpus's segments are, which another version of their maker never shares."""
    digest = hashlib.sha256()
    for source in ("segment", "builder", "postings"):
        digest.update((ROOT / "sidr_rag" / "index" / f"{source}.py").read_bytes())
    return corpus.folder.with_name(f"{corpus.folder.name}-segments-{digest.hexdigest()[:12]}")


def _segments(corpus: Corpus) -> None:
    """Tokenize the passages and write their segments, where that is not done yet."""
    from sidr_rag.encoder import load_encoder
    from sidr_rag.index.builder import build_segment

    place = _place(corpus)
    if (place / "whole").exists():
        return
    place.mkdir(exist_ok=True)
    tokenizer = load_encoder().tokenizer
    texts, first = corpus.texts(), 1
    for number in itertools.count():
        block = list(itertools.islice(texts, _SEGMENT_ROWS))
        if not block:
            break
        seqs = np.arange(first, first + len(block), dtype=np.uint64)
        build_segment(tokenizer.counts(block), seqs, _LEVELS).save(place / f"{number}.seg")
        first += len(block)
    (place / "whole").touch()


# In the child


def _measure(corpus: Corpus, rounds: int) -> dict[str, Any]:
    from sidr_rag.encoder import load_encoder
    from sidr_rag.index.segment import Segment
    from sidr_rag.options import resolve_weighting
    from sidr_rag.search.weighting import weigh_queries

    paths = sorted(_place(corpus).glob("*.seg"), key=lambda path: int(path.stem))
    index = BotIndex.of(corpus.dim, [SegmentView(path.stem, Segment.open(path)) for path in paths])
    plain = PlainAccumulation(corpus, corpus.folder)
    plain.load()
    plain.open()
    encoder = load_encoder()
    weighting = resolve_weighting("default", encoder)
    vectors = {name: corpus.vectors(name) for name in SETS}
    own = encoder.encode_queries(corpus.questions, representation="bot")
    weighed = weigh_queries(vectors["default"], own, weighting, index.df, index.n_live)
    times: dict[str, dict[str, list[float]]] = {}
    for name, of_set in vectors.items():
        plain.take(name)
        times[name] = _times(index, of_set, plain, rounds)
    curves = {
        **vectors,
        _WEIGHED: weighed,
        "the model's 768 strongest": encoder.encode_queries(corpus.questions, max_active_dims=FLAT_DIMS),
    }
    return {
        "times": times,
        "postings": {name: corpus.postings_of(name) for name in SETS},
        "weights": {name: _curve(of_set) for name, of_set in curves.items() if name != "flat"},
        "bytes": np.sum([view.segment.level_bytes() for view in index.views], axis=0).tolist(),
    }


def _times(index: BotIndex, vectors: SparseVectors, plain: PlainAccumulation, rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds of every query by method; of a batch, of every round."""
    from sidr_rag.search import compiled_scans
    from sidr_rag.search.cpu import NumbaKernel
    from sidr_rag.search.searcher import search_index
    from sidr_rag.search.weighting import Weighting

    weightings = {
        _ONE: Weighting(),
        _THREE: Weighting(_LEVELS, _GAINS),
        _ONE_LENGTHS: Weighting(length_exponent=0.5, length_slope=0.4),
        _THREE_LENGTHS: Weighting(_LEVELS, _GAINS, length_exponent=0.5, length_slope=0.4),
    }
    alone = [SparseVectors.from_rows([row], vectors.dim) for row in vectors]

    def single(weighting: Weighting) -> Callable[[int], Any]:
        return lambda i: search_index(index, alone[i], weighting, K, kernel="numba")

    methods: dict[str, Callable[[int], Any]] = {_PLAIN: plain.search}
    methods |= {name: single(weighting) for name, weighting in weightings.items()}
    usual = compiled_scans._BITMAPS_LEFT_OUT
    compiled_scans._BITMAPS_LEFT_OUT = 1 << 40
    methods[_KEPT] = partial(_without_choice, index, alone, NumbaKernel(cache=False))
    compiled_scans._BITMAPS_LEFT_OUT = usual
    _check(methods, alone)
    times = {name: t.cpu.tolist() for name, t in interleaved_queries(methods, len(alone), rounds).items()}
    for name, weighting in weightings.items():
        times[_BATCH + name] = _batch_times(
            partial(search_index, index, vectors, weighting, K, kernel="numba"), len(alone), rounds
        )
    return {name: [round(t, 5) for t in of_name] for name, of_name in times.items()}


def _without_choice(index: BotIndex, alone: Sequence[SparseVectors], kernel: Any, i: int) -> Any:
    """`search_index` of one level with another kernel."""
    from unittest.mock import patch

    from sidr_rag.search import searcher
    from sidr_rag.search.weighting import BINARY

    with patch.object(searcher, "kernel_for", lambda *_, **__: kernel):
        return searcher.search_index(index, alone[i], BINARY, K)


def _batch_times(search: Callable[[], Any], n: int, rounds: int) -> list[float]:
    search()
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        search()
        times.append((time.process_time_ns() - start) / 1e6 / n)
    return times


def _check(methods: dict[str, Callable[[int], Any]], alone: Sequence[SparseVectors]) -> None:
    """Refuse to time methods that do not find the same."""
    for i in range(len(alone)):
        [(seqs, scores)] = methods[_ONE](i)
        [(others, their)] = methods[_KEPT](i)
        if seqs.tolist() != others.tolist() or scores.tobytes() != their.tobytes():
            raise SystemExit(f"query {i}: leaving out bitmaps changed the result")
        best = np.sort(methods[_PLAIN](i)[1])[::-1][: len(scores)]
        if not np.allclose(scores, best, rtol=1e-4):
            raise SystemExit(f"query {i}: plain accumulation's best scores are not ours")


def _curve(vectors: SparseVectors) -> list[float]:
    shares = np.zeros((len(vectors), max(_RANKS)))
    for i, (_, weights) in enumerate(vectors):
        strongest = np.sort(weights)[::-1][: max(_RANKS)]
        shares[i, : len(strongest)] = strongest / strongest[0]
    return [float(shares[:, rank - 1].mean()) for rank in _RANKS]


if __name__ == "__main__":
    main()
