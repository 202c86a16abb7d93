"""A store of a million passages: streamed in, opened, searched, filtered and added to; seconds and memory."""

from __future__ import annotations

import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import passages, read_texts, write_texts
from benchmarks.data import few_questions, questions
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.timing import median
from sidr_rag import SiDR
from sidr_rag.search.kernels import warm_up

_PASSAGES = 1_000_000
_SMALL = 2_000
_TEXTS, _QUESTIONS = "texts.txt", "questions.txt"
_FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "eq, one in ten": {"tenant": "t3"},
    "eq, one in a million (every value differs)": {"url": "https://example.org/page/77"},
    "range of numbers, half": {"n": {"gte": 500}},
    "in, three of ten": {"tenant": {"in": ["t1", "t2", "t3"]}},
    "not, nine in ten": {"not": {"tenant": "t3"}},
    "and of two": {"tenant": "t3", "n": {"lt": 100}},
    "matches nothing": {"tenant": "nobody"},
    "text_match in every value": {"url": {"text_match": "PAGE/77"}},
}


def metadata(i: int) -> dict[str, Any]:
    """A key of ten values, a number, and a key whose values all differ."""
    return {"tenant": f"t{i % 10}", "n": i * 7919 % 1000, "url": f"https://example.org/page/{i}"}


def build(folder: Path, n: int) -> dict[str, Any]:
    """Stream texts into a new store by one call of `add`."""
    SiDR.from_texts(["warm"])
    before = _peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    with SiDR.open(folder / "store", create=True) as sidr:
        sidr.add(read_texts(folder / _TEXTS), metadatas=(metadata(i) for i in range(n)))
        added = time.perf_counter() - wall
        sidr._store.wait()
        segments = sidr.info()["segments"]
    size = {p.name: p.stat().st_size for p in (folder / "store").rglob("*") if p.is_file()}
    return {
        "seconds_add": added,
        "seconds_merged": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak_mb": _peak_mb(),
        "before_mb": before,
        "segments": segments,
        "database_mb": size["passages.db"] / 1e6,
        "segments_mb": sum(v for k, v in size.items() if k.endswith(".seg")) / 1e6,
    }


def opened(folder: Path, n: int) -> dict[str, Any]:
    """Open the store and answer once; then search with and without filters, and add to it."""
    asked = list(read_texts(folder / _QUESTIONS))
    start = time.perf_counter()
    sidr = SiDR.open(folder / "store")
    at_open = time.perf_counter() - start
    found = sidr.search(asked[0])
    first = time.perf_counter() - start
    assert found
    warm_up(wait=True)
    for question in asked:
        sidr.search(question)
    anonymous = _anonymous_mb()
    first_use, warm = {}, {}
    for name, condition in _FILTERS.items():
        first_use[name] = _ms(partial(sidr.search, asked[0], filter=condition or None))
    for name, condition in _FILTERS.items():
        times = [_ms(partial(sidr.search, q, filter=condition or None)) for q in asked for _ in range(3)]
        warm[name] = median(times)
    vectors = [sidr.encode_queries([q]) for q in asked]
    beta = median([_ms(partial(sidr.search_vectors, v)) for v in vectors for _ in range(3)])
    encode = median([_ms(partial(sidr.encode_queries, [q])) for q in asked])
    fresh = list(itertools.islice(read_texts(folder / _TEXTS), 1000))
    one = _ms(lambda: sidr.add([fresh[0]]))
    thousand = _ms(lambda: sidr.add(fresh))
    delete = _ms(lambda: sidr.delete(sidr.add(fresh[:1])))
    sidr._store.wait()
    sidr.close()
    return {
        "open": at_open,
        "first_answer": first,
        "anonymous_mb": anonymous,
        "filters_first_ms": first_use,
        "filters_ms": warm,
        "beta_ms": beta,
        "encode_ms": encode,
        "add_1_ms": one,
        "add_1000_ms": thousand,
        "add_delete_ms": delete,
    }


def main() -> None:
    """Build and use the store in processes of their own, and write the result."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "FOLDER"), help="used by the script itself")
    arguments = parser.parse_args()
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    if arguments.child:
        what: dict[str, Callable[[Path, int], dict[str, Any]]] = {"build": build, "opened": opened}
        print(json.dumps(what[arguments.child[0]](Path(arguments.child[1]), n)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder) / _TEXTS, passages(n, small=arguments.small))
        asked = few_questions(3) if arguments.small else questions(20)
        write_texts(Path(folder) / _QUESTIONS, (" ".join(question.split()) for question in asked))
        command = ["-m", "benchmarks.store", "--passages", str(n)]
        built = run_child([*command, "--child", "build", folder], ONE_CORE)
        rounds = [run_child([*command, "--child", "opened", folder], ONE_CORE) for _ in range(arguments.rounds)]
    result = _result(n, built, rounds)
    result.show() if arguments.small else result.write()


def _result(n: int, built: dict[str, Any], rounds: list[dict[str, Any]]) -> Result:
    def middle(key: str) -> float:
        return median([r[key] for r in rounds])

    result = Result(
        "store",
        f"A store of {n:,} passages",
        [
            "Texts of about 100 words (see `one_query`); three metadata keys (ten values; a thousand numbers; all "
            "different). One process streams them in by one `add`; fresh "
            f"processes ({len(rounds)}, medians) then open the folder. One thread for linear algebra.",
            "Filters: milliseconds of whole searches (encoding included), median of 20 questions three times; first "
            "use includes reading the key's values and, for text_match, testing each of them.",
            "Files are in the page cache. Anonymous memory is what is not backed by mapped files (RssAnon).",
        ],
        [],
        ["numpy", "numba", "tokenizers"],
        f"python -m benchmarks.store --passages {n}",
        raw={"built": built, "rounds": rounds},
    )
    rows: list[list[Cell]] = [
        ["stream in, s until durable", built["seconds_add"]],
        ["... and merged, s", built["seconds_merged"]],
        ["... CPU s of all threads", built["cpu"]],
        ["... peak resident MB (process start and model included)", built["peak_mb"]],
        ["segments afterwards", built["segments"]],
        ["database, MB", built["database_mb"]],
        ["segment files (three levels, metadata), MB", built["segments_mb"]],
        ["open, s", middle("open")],
        ["open to first answer, s", middle("first_answer")],
        ["anonymous memory after 20 searches, MB", middle("anonymous_mb")],
        ["encode a question, ms", middle("encode_ms")],
        ["binary beta search of a vector, passages fetched, ms", middle("beta_ms")],
        ["add 1 passage, ms until durable", middle("add_1_ms")],
        ["add 1,000 passages, ms until durable", middle("add_1000_ms")],
        ["add 1 and delete it, ms", middle("add_delete_ms")],
    ]
    result.tables.append(Table("The store", ("what", "value"), rows))
    plain = median([r["filters_ms"]["no filter"] for r in rounds])
    filters: list[list[Cell]] = []
    for name in _FILTERS:
        warm = median([r["filters_ms"][name] for r in rounds])
        first = median([r["filters_first_ms"][name] for r in rounds])
        filters.append([name, warm, warm - plain, first])
    columns = ("filter", "search, ms", "more than without, ms", "first use, ms")
    result.tables.append(Table("Filters", columns, filters))
    most = max(float(str(row[2])) for row in filters)
    result.musts += [
        Must("open to first answer, s", middle("first_answer"), 2.0),
        Must("peak resident MB while streaming in", built["peak_mb"], 1500.0),
        Must("anonymous MB while searching", middle("anonymous_mb"), 600.0),
        Must("most that a filter adds to a search, in searches without one", most / plain, 1.0),
    ]
    return result


def _ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _anonymous_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    raise SystemExit("this benchmark reads /proc/self/status")


if __name__ == "__main__":
    main()
