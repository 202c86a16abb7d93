"""Late parametric search: quality, cost and time of its combinations on judged sets.

Stores, embeddings and the figures of each set are kept in the folder, so a run that was cut off is taken up where it
stopped, and sets may be measured one by one (`--sets`); a run over all of them writes the result. Set
OMP_NUM_THREADS=1, as for `quality`. `--split dev` measures the sets that have training or dev judgements: what the
defaults were chosen by.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.late_sets import MEASURE, TIMED, SetFigures, figures_of, searches
from benchmarks.options import make_parser
from benchmarks.peers import BM25S_SETTINGS
from benchmarks.results import Cell, Result, Table
from sidr_rag.eval import load_beir
from sidr_rag.rerank import BiEncoder

_SHARED = Path(__file__).resolve().parents[1].parent / "shared"
_SETS = ("scifact", "nfcorpus", "squad-dev", "covidqa-passages")
_DEV = {"scifact": "train", "nfcorpus": "dev", "multispanqa-nq": "dev"}
_QUERIES = 500


def main() -> None:
    """Measure the sets in turn, and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", help="measure only these folders of the shared data; writes no result"
    )
    parser.add_argument("--split", choices=("test", "dev"), default="test")
    parser.add_argument(
        "--limit-queries", type=int, default=_QUERIES, help="at most so many of each set, evenly spaced (%(default)s)"
    )
    parser.add_argument("--again", action="store_true", help="measure anew what an earlier run has measured")
    arguments = parser.parse_args()
    dev = arguments.split == "dev"
    names = arguments.sets or (["nq-utd"] if arguments.small else list(_DEV if dev else _SETS))
    minilm = BiEncoder(_SHARED / "models" / "all-MiniLM-L6-v2", device="cpu", dtype="auto")
    found: dict[str, SetFigures] = {}
    for name in names:
        split = _DEV.get(name, "dev") if dev else "test"
        data = load_beir(_SHARED / "data" / "eval" / name, split)
        data = data.limited(20 if arguments.small else arguments.limit_queries)
        folder = arguments.folder / "late" / name
        kept = folder.with_name(f"{name}-{split}.json")
        found[f"{name}, {split}"] = figures_of(data, folder, kept, searches(minilm, dev=dev), again=arguments.again)
    result = _result(found, arguments.limit_queries, dev=dev)
    if arguments.small or arguments.sets:
        result.show()
    else:
        result.write()


def _result(found: dict[str, SetFigures], limit: int, *, dev: bool) -> Result:
    result = Result(
        "late_dev" if dev else "late",
        "Late parametric search" + (", on training and dev judgements" if dev else ""),
        [
            f"{MEASURE} by ir_measures; at most {limit:,} queries of a set, evenly spaced. The bundled model with its "
            "own weighting; MiniLM is all-MiniLM-L6-v2, vectors kept in int8, blended with half the weight on each "
            "stage. Passages are embedded in bfloat16 where torch and the processor multiply it.",
            "Cost: texts that an encoder reads for all queries (queries and every candidate, as in the paper's table "
            "of costs), as a share of the corpus; embeddings that are kept save what is read twice.",
            f"Time: CPU milliseconds of one query with one thread, embeddings kept; the median over {TIMED} queries.",
            *(["What the defaults are chosen by."] if dev else ["Nothing was chosen by these figures."]),
        ],
        [BM25S_SETTINGS],
        ["numpy", "torch", "bm25s", "PyStemmer", "ir_measures"],
        "python -m benchmarks.late"
        + (" --split dev" if dev else "")
        + (f" --limit-queries {limit}" if limit != _QUERIES else ""),
        raw={name: {s: m.__dict__ for s, m in of_set.searches.items()} for name, of_set in found.items()},
    )
    tables: list[tuple[str, str, bool]] = [
        (MEASURE, "score", True),
        ("Cost: texts read, as a share of the corpus", "share", False),
        ("CPU milliseconds of one query, embeddings kept", "cpu_ms", True),
    ]
    for title, attribute, mean in tables:
        rows: list[list[Cell]] = []
        for name in next(iter(found.values())).searches:
            figures = [float(getattr(of_set.searches[name], attribute)) for of_set in found.values()]
            rows.append([name, *figures, *([sum(figures) / len(figures)] if mean else [])])
        result.tables.append(Table(title, ("search", *found, *(("mean",) if mean else ())), rows))
    columns = (
        *("set", "passages", "queries", "CPU ms to embed a passage"),
        *("bytes of the full index a passage", "kept bytes a passage"),
    )
    facts: list[list[Cell]] = [
        [name, f.passages, f.queries, f.embed_ms, f.index_bytes, f.kept_bytes] for name, f in found.items()
    ]
    result.tables.append(Table("Sets", columns, facts))
    return result


if __name__ == "__main__":
    main()
