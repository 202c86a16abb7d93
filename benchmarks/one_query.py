"""One query on one core over 10,000, 100,000 and 1,000,000 passages: this library beside every searching peer."""

from __future__ import annotations

from benchmarks.corpora import FLAT_DIMS, N_QUERIES, SETS, K, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_rounds import Measured, measure_rounds
from benchmarks.searchers import NAMES, searcher

_SIZES = (10_000, 100_000, 1_000_000)
_SMALL = (2_000,)
_HEADINGS = {
    "flat": f"{FLAT_DIMS} dimensions, flat tail",
    "default": "The default model's own vectors, and the questions they were made of",
}
_BYTES_MOVED = (
    "a query of this kind meets the postings of the column `postings a passage`; see `kernels` for their time alone"
)

_ANY_QUERY = (
    "torch reads every entry of the index (12 bytes each) whatever the query, ours the postings that the query meets: "
    "the title of the table says how many; with the default's own vectors, which meet a few, the table's ratio is "
    "far above the bound"
)


def main() -> None:
    """Measure size after size, and write the result."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--passages", type=int, nargs="+", help=f"sizes ({' '.join(map(str, _SIZES))})")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    sizes = arguments.passages or (_SMALL if arguments.small else _SIZES)
    measured: dict[int, dict[str, Measured]] = {}
    postings: dict[int, dict[str, float]] = {}
    for n in sizes:
        corpus = prepare(arguments.folder, n, small=arguments.small)
        measured[n] = measure_rounds(arguments.only, corpus, rounds=arguments.rounds)
        postings[n] = {name: corpus.postings_of(name) for name in SETS}
    command = "python -m benchmarks.one_query" + ("" if sizes == _SIZES else f" --passages {' '.join(map(str, sizes))}")
    result = _result(measured, postings, arguments.rounds, command)
    result.show() if arguments.small else result.write()


def _result(
    measured: dict[int, dict[str, Measured]], postings: dict[int, dict[str, float]], rounds: int, command: str
) -> Result:
    names = list(dict.fromkeys(name for of_size in measured.values() for name in of_size))
    result = Result(
        "one_query",
        "One query, beside peers",
        [
            "Passages: up to 200,000 distinct pieces of 100 words of the shared training data; beyond, the first half "
            "of one piece and the second half of another, so that no two bags are alike. Ours is a store in a folder, "
            "opened for reading, files in the page cache.",
            f"{N_QUERIES} real questions of the training pairs; top {K}; one query at a time, one thread for "
            "everything. Flat: the weights of the model's top 768 dimensions of each question, given to 768 dimensions "
            "drawn in proportion to how many passages hold them. Default: the model's own vectors; peers that search "
            "words get the question.",
            f"Each method has a process of its own, all are open at once, and they take turns in {rounds} rounds. For "
            "each query the median over rounds of CPU milliseconds, all threads counted; the table gives the median "
            "and the 95th percentile over queries. A method so slow that a round would take more than four seconds "
            "gets fewer queries; ratios compare the queries that both answered. Queries in the form a peer wants are "
            "made before the clock starts.",
            f"Recall: the share of the exact best {K} (scanned in 64-bit floats), a passage counting by its exact "
            "score. Seismic's query_cut and heap_factor are chosen for each size and kind of query on the measured "
            "queries themselves: the fastest pair with a recall of at least 0.95.",
        ],
        [searcher(name).label for name in names if not name.startswith("sidr")],
        sorted({package for name in names for package in searcher(name).packages}),
        command,
        raw={str(n): {name: m.to_json() for name, m in of_size.items()} for n, of_size in measured.items()},
    )
    for n, of_size in measured.items():
        for kind, heading in _HEADINGS.items():
            title = f"{n:,} passages. {heading}: {postings[n][kind]:.1f} postings a passage"
            result.tables.append(_table(title, kind, of_size))
    result.musts = [must for n in measured for must in _musts(n, measured[n])]
    return result


def _table(title: str, kind: str, of_size: dict[str, Measured]) -> Table:
    ours = of_size.get("sidr")
    rows: list[list[Cell]] = []
    for name, m in of_size.items():
        if kind not in searcher(name).sets:
            continue
        label = searcher(name).label
        if kind not in m.sets:
            rows.append([label, None, None, None, None, None, None, m.failed or "failed"])
            continue
        times = m.sets[kind]
        ratio = times.ratio_to(ours.sets[kind]) if ours is not None and kind in ours.sets else None
        recall = None if times.recall is None else f"{times.recall:.3f}"
        figures = (times.cpu_median, times.cpu_percentile(95), times.wall_median)
        rows.append([label, *figures, ratio, recall, len(times.cpu), times.settings])
    columns = ("method", "CPU ms, median", "CPU ms, 95 %", "passed ms, median", "times search_vectors", "recall")
    return Table(title, (*columns, "queries", "remarks"), rows)


def _musts(n: int, of_size: dict[str, Measured]) -> list[Must]:
    """The targets that this size has, of the methods that ran."""
    musts: list[Must] = []

    def ratio(mine: str, other: str, kind: str) -> float | None:
        both = [of_size.get(name) for name in (mine, other)]
        if any(m is None or kind not in m.sets for m in both):
            return None
        first, second = (m.sets[kind] for m in both if m is not None)
        return first.ratio_to(second)

    def add(what: str, value: float | None, bound: float, aim: float | None, limit: str, **more: bool) -> None:
        if value is not None:
            musts.append(Must(f"{n:,} passages: {what}", value, bound, aim=aim, limit=limit, **more))

    fetching = "the table's rows `search alone` show what fetching ids from SQLite adds; " + _BYTES_MOVED
    bounds = {10_000: (1.0, None), 100_000: (0.5, None), 1_000_000: (0.55, 0.4)}
    if n in bounds:
        what = "search alone, flat, of plain accumulation's time"
        add(what, ratio("sidr_one_level", "plain", "flat"), *bounds[n], _BYTES_MOVED)
    if n == 1_000_000:
        torch = ratio("torch", "sidr", "flat")
        add("search_vectors, flat, times faster than torch CSR", torch, 60, 90, _ANY_QUERY, at_least=True)
        add("search_vectors, default, of seismic's time", ratio("sidr", "seismic", "default"), 1.0, 0.5, fetching)
        levels = ratio("sidr_three_levels", "sidr_one_level", "flat")
        add("three levels, flat, of one level's time", levels, 1.5, 1.3, "levels two and three hold 40 % more entries")
    for kind in SETS:
        mine = of_size.get("sidr")
        if mine is not None and kind in mine.sets:
            add(f"search_vectors, {kind}, recall", mine.sets[kind].recall, 1.0, None, "", at_least=True)
    return musts


if __name__ == "__main__":
    main()
