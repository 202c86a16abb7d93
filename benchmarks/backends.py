"""Inserting and searching on every backend, beside the local engine: same passages, same queries, same results."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.corpora import prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from sidr_rag import SiDR
from sidr_rag.backends import open_backend
from sidr_rag.search.kernels import warm_up
from sidr_rag.types import Hits, SparseVectors

_SIZE = 100_000
_SMALL = 1_000
_K = 10
_N_QUERIES = 32
_N_SHARDS = 4
_LABELS = {
    "local": "local engine, one folder",
    "sharded": f"local engine, {_N_SHARDS} folders as one",
    "qdrant-edge": "Qdrant's engine in this process (qdrant-edge-py)",
    "milvus": "Milvus Lite",
    "qdrant": "qdrant-client's local mode (Python, for tests)",
}


@dataclass
class Measured:
    """One backend's figures.

    Attributes:
        insert_cpu: CPU seconds of adding everything, this process.
        insert_wall: seconds of the same.
        query_cpu: median CPU milliseconds of one query, this process.
        query_wall: median milliseconds of the same.
        same: how many queries gave the local engine's ids and scores, of how many.
    """

    insert_cpu: float
    insert_wall: float
    query_cpu: float
    query_wall: float
    same: tuple[int, int]


def main() -> None:
    """Measure backend after backend, and write the result."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--passages", type=int, help=f"how many ({_SIZE:,})")
    parser.add_argument("--only", nargs="+", choices=list(_LABELS), default=[n for n in _LABELS if n != "qdrant"])
    arguments = parser.parse_args()
    n = arguments.passages or (_SMALL if arguments.small else _SIZE)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    texts = list(itertools.islice(corpus.texts(), n))
    asked = corpus.questions[:_N_QUERIES]
    names = ["local", *(name for name in arguments.only if name != "local")]
    folder = arguments.folder / "backends"
    warm_up()  # the first backend is not to be timed while its kernel is loaded
    measured: dict[str, Measured] = {}
    expected: list[tuple[list[str], list[float]]] = []
    for name in names:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with _opened(name, folder) as sidr:
            vectors = sidr.encode_queries(asked)
            measured[name], found = _measure(name, sidr, texts, vectors, arguments.rounds)
        expected = expected or found
        if name != "sharded":  # there, ties are in the order of the shards
            agreeing = sum(a == b for a, b in zip(found, expected, strict=True))
        else:
            agreeing = sum(a[1] == b[1] for a, b in zip(found, expected, strict=True))
        measured[name].same = (agreeing, len(found))
    shutil.rmtree(folder, ignore_errors=True)
    result = _result(measured, n, arguments.rounds)
    result.show() if arguments.small else result.write()


def _opened(name: str, folder: Path) -> SiDR:
    if name == "local":
        return SiDR.open(folder / "store", create=True, weighting="binary")
    if name == "sharded":
        return open_backend([folder / str(i) for i in range(_N_SHARDS)], create=True, weighting="binary")
    place = f"{name}://{folder / ('passages.db' if name == 'milvus' else 'passages')}"
    return open_backend(place, create=True, weighting="binary")


def _measure(
    name: str, sidr: SiDR, texts: list[str], vectors: SparseVectors, rounds: int
) -> tuple[Measured, list[tuple[list[str], list[float]]]]:
    step = -(-len(texts) // _N_SHARDS) if name == "sharded" else len(texts)

    def insert() -> None:
        for start in range(0, len(texts), step):
            part = texts[start : start + step]
            sidr.add(part, ids=[str(start + i) for i in range(len(part))])

    insert_cpu, insert_wall = _clocked(insert)
    singles = [SparseVectors.from_rows([row], vectors.dim) for row in vectors]
    found: list[tuple[list[str], list[float]]] = []
    cpu, wall = [], []
    for round_number in range(rounds + 1):
        for single in singles:
            hits: list[Hits] = []
            times = _clocked(partial(_search_into, sidr, single, hits))
            if round_number:  # the first round warms up
                cpu.append(1000 * times[0])
                wall.append(1000 * times[1])
            else:
                found.append((hits[0].ids[0], hits[0].scores[0].tolist()))
    return Measured(insert_cpu, insert_wall, statistics.median(cpu), statistics.median(wall), (0, 0)), found


def _search_into(sidr: SiDR, vectors: SparseVectors, hits: list[Hits]) -> None:
    hits.append(sidr.search_vectors(vectors, _K))


def _clocked(call: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the process, and seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - cpu, time.perf_counter() - wall


def _result(measured: dict[str, Measured], n: int, rounds: int) -> Result:
    rows: list[list[Cell]] = [
        [
            _LABELS[name],
            round(n / m.insert_cpu),
            round(n / m.insert_wall),
            m.query_cpu,
            m.query_wall,
            f"{m.same[0]} of {m.same[1]}",
        ]
        for name, m in measured.items()
    ]
    columns = (
        *("backend", "passages a CPU second", "passages a second"),
        *("CPU ms a query", "ms a query", "queries with the local engine's results"),
    )
    return Result(
        "backends",
        "The same retriever on Qdrant and Milvus",
        [
            f"{n:,} passages of about 100 words, binary weighting; {_N_QUERIES} queries of the default model, encoded "
            f"before the clock starts, top {_K} with texts; median of {rounds} rounds after one that warms up.",
            "The engines run inside this process, so that their work is in its CPU time; a server would also take the "
            "time of its network. The sharded store orders ties by shard: its scores are compared, not its ids.",
        ],
        [_LABELS[name] for name in measured if name not in ("local", "sharded")],
        _packages(measured),
        "python -m benchmarks.backends" + ("" if n == _SIZE else f" --passages {n}"),
        tables=[Table(f"{n:,} passages", columns, rows)],
        musts=[
            Must(f"{_LABELS[name]}: share of queries with the local engine's results", m.same[0] / m.same[1], 1.0, True)
            for name, m in measured.items()
            if name != "local"
        ],
        raw={name: asdict(m) for name, m in measured.items()},
    )


def _packages(names: Iterable[str]) -> list[str]:
    own = {"qdrant": ["qdrant-client"], "qdrant-edge": ["qdrant-edge-py"], "milvus": ["pymilvus", "milvus-lite"]}
    return sorted({package for name in names for package in own.get(name, [])})


if __name__ == "__main__":
    main()
