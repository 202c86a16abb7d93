"""What shorter query vectors gain in time and lose in quality: `max_active_dims` and `weight_floor`, on dev data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import Corpus, K, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Result, Table
from benchmarks.search_children import built
from benchmarks.timing import interleaved_queries
from sidr_rag.types import SparseVectors

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "eval"
_DEV = {"scifact": "train", "nfcorpus": "dev", "multispanqa-nq": "dev"}
_MEASURE = "nDCG@10"
_PASSAGES, _SMALL, _SMALL_QUERIES = 100_000, 2_000, 5
_ACTIVE_DIMS = (None, 32, 16, 8)
_FLOORS = (0.0, 0.1, 0.2, 0.3, 0.4)
_CHECKED = 3

Setting = tuple[int | None, float]


def main() -> None:
    """Measure in a child that has one thread for everything, and write the result."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    parser.add_argument("--child", nargs=2, metavar=("CORPUS", "STORE"), help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.child:
        folder, store = map(Path, arguments.child)
        print(json.dumps(_measure(Corpus(folder), store, arguments.rounds, small=arguments.small)))
        return
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    index = built(["sidr"], corpus)["sidr"]
    if isinstance(index, str):
        raise SystemExit(f"no store of {n:,} passages: {index}")
    child = ["-m", "benchmarks.pruning", "--rounds", str(arguments.rounds)]
    child += ["--child", str(corpus.folder), str(index / "store")]
    measured = run_child([*child, "--small"] if arguments.small else child, ONE_CORE)
    command = "python -m benchmarks.pruning" + ("" if n == _PASSAGES else f" --passages {n}")
    result = _result(measured, n, arguments.rounds, command)
    result.show() if arguments.small else result.write()


def _result(measured: dict[str, Any], n: int, rounds: int, command: str) -> Result:
    sets = measured["sets"]
    result = Result(
        "pruning",
        "Shorter query vectors",
        [
            "`max_active_dims` cuts V_theta(q) to its greatest dimensions (the question's own tokens stay), and "
            "`weight_floor` leaves out those whose weight w(t), idf included, is less than this share of the greatest. "
            "Both are off by default: what is left out is missing from every score. Levelled beta search, the default "
            f"model with its own constants; its max_active_dims is {measured['default_dims']}.",
            f"{_MEASURE} by ir_measures over all judged queries of dev splits alone ("
            + ", ".join(f"{name} {facts['split']}: {facts['queries']} queries" for name, facts in sets.items())
            + "); a query that finds nothing counts 0. Nothing was chosen by these figures.",
            f"Time over {n:,} passages (see `one_query`), {measured['questions']} questions, compiled kernel, one "
            f"thread: CPU milliseconds from V_theta(q) to the best {K} rows, for each query the median over {rounds} "
            "rounds in which the settings take turns; the table gives the median over queries, and the sum over "
            "queries as a share of the default's.",
        ],
        [],
        ["numpy", "numba", "tokenizers", "ir_measures", "pytrec_eval-terrier"],
        command,
        raw=measured,
    )
    rows: list[list[Cell]] = []
    whole = measured["settings"][0]
    for of_setting in measured["settings"]:
        scores = [of_setting["scores"][name] for name in sets]
        mean = float(np.mean(scores))
        lost = mean - float(np.mean([whole["scores"][name] for name in sets]))
        dims = of_setting["max_active_dims"]
        rows.append(
            [
                f"{measured['default_dims']} (the default)" if dims is None else str(dims),
                "off" if not of_setting["weight_floor"] else str(of_setting["weight_floor"]),
                of_setting["dims"],
                *scores,
                mean,
                f"{lost:+.4f}" if of_setting is not whole else None,
                float(np.median(of_setting["cpu"])),
                sum(of_setting["cpu"]) / sum(whole["cpu"]),
            ]
        )
    columns = ("max_active_dims", "weight_floor", "dimensions searched", *sets, "mean", "against the default")
    columns = (*columns, "CPU ms, median", "of the default's time")
    result.tables.append(Table(f"{_MEASURE} on dev data, and time over {n:,} passages", columns, rows))
    return result


# In the child


def _measure(corpus: Corpus, store: Path, rounds: int, *, small: bool) -> dict[str, Any]:
    from sidr_rag import SiDR
    from sidr_rag.search import warm_up

    warm_up(wait=True)
    settings = list(itertools.product(_ACTIVE_DIMS, _FLOORS))
    with SiDR.open(store, read_only=True, num_threads=1, kernel="numba") as sidr:
        encoder = sidr.encoder
        dims, times = _times(sidr, corpus.questions, settings, rounds)
    sets = {name: _quality(name, split, settings, small=small) for name, split in _DEV.items()}
    return {
        "default_dims": encoder.config.max_active_dims.query,
        "questions": len(corpus.questions),
        "sets": {name: {"split": _DEV[name], "queries": queries} for name, (queries, _) in sets.items()},
        "settings": [
            {
                "max_active_dims": setting[0],
                "weight_floor": setting[1],
                "dims": dims[setting],
                "cpu": times[setting],
                "scores": {name: scores[setting] for name, (_, scores) in sets.items()},
            }
            for setting in settings
        ],
    }


def _times(
    sidr: Any, questions: list[str], settings: list[Setting], rounds: int
) -> tuple[dict[Setting, float], dict[Setting, list[float]]]:
    """How many dimensions are searched on average, and CPU milliseconds of each question."""
    index = sidr._store.current()
    encoded = _Encoded(sidr, questions)
    first, weighting = sidr._pipeline.first, sidr._pipeline.weighting

    def search(setting: Setting, i: int) -> object:
        weights = first.weighed(encoded.row(setting[0], i), encoded.bag(i), index, setting[1])
        return first.beta(weights, weighting, K, None, index)

    methods: dict[str, Callable[[int], object]] = {str(setting): partial(search, setting) for setting in settings}
    times = interleaved_queries(methods, len(questions), rounds)
    dims = {s: len(first.weighed(encoded.vectors(s[0]), encoded.bags, index, s[1]).dims) for s in settings}
    return (
        {setting: dims[setting] / len(questions) for setting in settings},
        {setting: np.round(times[str(setting)].cpu, 4).tolist() for setting in settings},
    )


def _quality(name: str, split: str, settings: list[Setting], *, small: bool) -> tuple[int, dict[Setting, float]]:
    """How many queries a dev set has, and the mean nDCG@10 of each setting."""
    from sidr_rag import SiDR
    from sidr_rag.eval import load_beir
    from sidr_rag.eval.measures import measure

    data = load_beir(_SHARED / name, split)
    if small:
        data = data.limited(_SMALL_QUERIES)
    found: dict[Setting, float] = {}
    with SiDR.from_passages(data.passages(), num_threads=1, kernel="numba") as sidr:
        index, first, weighting = sidr._store.current(), sidr._pipeline.first, sidr._pipeline.weighting
        encoded = _Encoded(sidr, list(data.queries.values()))
        for setting in settings:
            weights = first.weighed(encoded.vectors(setting[0]), encoded.bags, index, setting[1])
            hits = first.beta(weights, weighting, K, None, index)
            rows = sidr._store.fetch(sorted({int(seq) for seqs, _ in hits for seq in seqs}))
            run = {
                query: [(rows[int(seq)].id, float(score)) for seq, score in zip(*of_query, strict=True)]
                for query, of_query in zip(data.queries, hits, strict=True)
            }
            found[setting] = float(measure(run, data, [_MEASURE])[_MEASURE].mean())
    return len(data.queries), found


class _Encoded:
    """Questions, encoded once; vectors of fewer dimensions are cut from the widest ones."""

    def __init__(self, sidr: Any, texts: list[str]) -> None:
        self.bags: SparseVectors = sidr.bags(texts)
        self._theta: SparseVectors = sidr.encode_queries(texts)
        self._cut = {k: SparseVectors.from_rows(list(self._rows(k)), self._theta.dim) for k in _ACTIVE_DIMS if k}
        for k, cut in self._cut.items():
            for (dims, weights), asked in zip(
                cut, sidr.encode_queries(texts[:_CHECKED], max_active_dims=k), strict=False
            ):
                if not (np.array_equal(dims, asked[0]) and np.allclose(weights, asked[1], rtol=1e-4)):
                    raise SystemExit(f"max_active_dims={k}: a vector that was cut is not the encoder's own")

    def vectors(self, k: int | None) -> SparseVectors:
        """Of all questions."""
        return self._theta if k is None else self._cut[k]

    def row(self, k: int | None, i: int) -> SparseVectors:
        """Of one question."""
        return SparseVectors.from_rows([self.vectors(k).row(i)], self._theta.dim)

    def bag(self, i: int) -> SparseVectors:
        """Of one question."""
        return SparseVectors.from_rows([self.bags.row(i)], self._theta.dim)

    def _rows(self, k: int) -> Iterator[tuple[Any, Any]]:
        """The k greatest dimensions and the own tokens, as the encoder keeps them."""
        for (dims, weights), (own, _) in zip(self._theta, self.bags, strict=True):
            kept = np.isin(dims, own)
            kept[np.argsort(-weights, kind="stable")[:k]] = True
            yield dims[kept], weights[kept]


if __name__ == "__main__":
    main()
