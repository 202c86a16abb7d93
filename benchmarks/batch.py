"""Thirty-two queries in one call, on one core, beside peers that have such a call."""

from __future__ import annotations

from benchmarks.corpora import FLAT_DIMS, N_QUERIES, SETS, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_rounds import Measured, measure_rounds
from benchmarks.searchers import NAMES, searcher
from benchmarks.searchers.base import BatchSearcher

_SIZES = (100_000, 1_000_000)
_SMALL = (2_000,)
_PLAIN = "plain"
_HEADINGS = {"flat": f"{FLAT_DIMS} dimensions, flat tail", "default": "the default model's own vectors"}


def main() -> None:
    """Measure size after size, and write the result."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--passages", type=int, nargs="+", help=f"sizes ({' '.join(map(str, _SIZES))})")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    sizes = tuple(arguments.passages or (_SMALL if arguments.small else _SIZES))
    names = [name for name in arguments.only if issubclass(searcher(name), BatchSearcher) or name == _PLAIN]
    measured: dict[int, dict[str, Measured]] = {}
    for n in sizes:
        corpus = prepare(arguments.folder, n, small=arguments.small)
        measured[n] = measure_rounds(names, corpus, rounds=arguments.rounds, batches=True)
    command = "python -m benchmarks.batch" + ("" if sizes == _SIZES else f" --passages {' '.join(map(str, sizes))}")
    result = _result(names, measured, arguments.rounds, command)
    result.show() if arguments.small else result.write()


def _result(names: list[str], measured: dict[int, dict[str, Measured]], rounds: int, command: str) -> Result:
    result = Result(
        "batch",
        f"A batch of {N_QUERIES} queries, beside peers",
        [
            f"Passages, queries and processes as in `one_query`; all {N_QUERIES} queries of a kind in one call, one "
            f"thread; median of {rounds} rounds in which the methods take turns, divided by {N_QUERIES}. Plain "
            "accumulation has no such call: its row is the median of single queries, the measure of the others.",
        ],
        [searcher(name).label for name in names if not name.startswith("sidr")],
        sorted({package for name in names for package in searcher(name).packages}),
        command,
        raw={str(n): {name: m.to_json() for name, m in of_size.items()} for n, of_size in measured.items()},
    )
    for n, of_size in measured.items():
        for kind, heading in _HEADINGS.items():
            result.tables.append(_table(f"{n:,} passages, {heading}", kind, of_size))
        result.musts += _musts(n, of_size)
    return result


def _per_query(name: str, kind: str, of_size: dict[str, Measured]) -> float | None:
    """CPU milliseconds."""
    times = of_size[name].sets.get(kind) if name in of_size else None
    if times is None:
        return None
    return times.cpu_median / N_QUERIES if issubclass(searcher(name), BatchSearcher) else times.cpu_median


def _table(title: str, kind: str, of_size: dict[str, Measured]) -> Table:
    plain = _per_query(_PLAIN, kind, of_size)
    rows: list[list[Cell]] = []
    for name, m in of_size.items():
        if kind in searcher(name).sets:
            per_query = _per_query(name, kind, of_size)
            ratio = None if per_query is None or plain is None else per_query / plain
            rows.append([searcher(name).label, per_query, ratio, m.failed])
    return Table(title, ("method", "CPU ms a query", "times plain accumulation", "remarks"), rows)


def _musts(n: int, of_size: dict[str, Measured]) -> list[Must]:
    musts = []
    mine, plain = _per_query("sidr", SETS[0], of_size), _per_query(_PLAIN, SETS[0], of_size)
    if n == _SIZES[-1] and mine is not None and plain is not None:
        what = f"{n:,} passages: search_vectors of {N_QUERIES} flat queries, per query, of one plain accumulation"
        limit = "fetching the ids of every query's passages is part of it; see `kernels` for the search alone"
        musts.append(Must(what, mine / plain, 0.3, aim=0.15, limit=limit))
    return musts


if __name__ == "__main__":
    main()
