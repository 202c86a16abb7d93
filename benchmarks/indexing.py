"""How fast passages become searchable, and how many bytes their index takes."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.data import cut_passages, natural_passages
from benchmarks.machine import memory_bytes
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.timing import clocked, median

_N_PASSAGES = 20_000
_N_LARGE = 100_000
_BATCH = 1_000
_STEPS = {
    "hf": "Hugging Face encode_batch_fast",
    "hf_threads": "Hugging Face encode_batch_fast, its own threads",
    "hf_bags": "Hugging Face encode_batch_fast, then each text's distinct ids",
    "bags": "tokenization to bags",
    "memory": "bags and segments: SiDR.from_texts in memory",
    "folder": "the same, committed to a folder",
}


def main() -> None:
    """Measure every step in turn, several rounds, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=2, metavar=("STEP", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(*arguments.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        natural, large = Path(folder) / "natural.json", Path(folder) / "large.json"
        natural.write_text(json.dumps(natural_passages(_N_PASSAGES)), encoding="utf-8")
        large.write_text(json.dumps(cut_passages(_N_LARGE)), encoding="utf-8")
        runs: dict[str, list[dict[str, Any]]] = {step: [] for step in _STEPS}
        for _ in range(arguments.rounds):
            for step in _STEPS:
                runs[step].append(_measured(step, natural))
        sizes = {n: _measured("sizes", path) for n, path in ((_N_PASSAGES, natural), (_N_LARGE, large))}
    _result(runs, sizes, arguments.rounds).write()


def _measured(step: str, texts: Path) -> Any:
    environment = {"TOKENIZERS_PARALLELISM": "true"} if step == "hf_threads" else ONE_CORE
    return run_child(["-m", "benchmarks.indexing", "--child", step, str(texts)], environment)


def _result(runs: dict[str, list[dict[str, Any]]], sizes: dict[int, dict[str, Any]], rounds: int) -> Result:
    rates = {step: _N_PASSAGES / median([run["cpu"] for run in done]) for step, done in runs.items()}
    result = Result(
        "indexing",
        "Indexing",
        [
            f"{_N_PASSAGES:,} real passages: distinct texts of 80 to 120 words of the shared training data, evenly "
            f"spaced over all of them; {rounds} interleaved rounds, medians, each step in a fresh process with an "
            "empty tokenizer cache and, but for one row, one thread. CPU seconds are of all threads; loading the model "
            "and the texts is not counted.",
            f"Hugging Face's tokenizer gets the same tokenizer.json, the texts as they are, in batches of {_BATCH:,}, "
            "no special tokens; ours normalizes (NFKC) first.",
            "Memory is the process's highest resident size less its size before the step, texts excluded.",
            "Bytes are of the arrays in the segment files of a saved store; forward: lists and list lengths; postings: "
            f"rows, dimensions and list lengths. The {_N_LARGE:,} passages are the training data's texts cut at "
            "100 words.",
        ],
        ["tokenizers (encode_batch_fast)"],
        ["numpy", "tokenizers", "numba"],
        "python -m benchmarks.indexing",
        raw={"runs": runs, "sizes": {str(n): size for n, size in sizes.items()}},
    )
    rows: list[list[Cell]] = []
    for step, done in runs.items():
        wall, extra = median([r["wall"] for r in done]), median([r["peak"] - r["before"] for r in done])
        rows.append([_STEPS[step], rates[step], _N_PASSAGES / wall, rates[step] / rates["hf"], extra / 2**20])
    columns = ("step", "passages per CPU second", "passages per second", "times Hugging Face", "memory, MiB")
    result.tables.append(Table("Speed", columns, rows))
    for n, size in sizes.items():
        rows = [
            [f"count >= {p['threshold']}", p["entries"], p["entries"] / n, p["forward"], p["postings"]]
            for p in size["levels"]
        ]
        columns = ("level", "entries", "per passage", "forward bytes per entry", "postings bytes per entry")
        title = f"Bytes, {n:,} passages in {size['segments']} segments, {size['file_bytes'] / n:.0f} bytes a passage"
        result.tables.append(Table(title, columns, rows))
    levels = [p for size in sizes.values() for p in size["levels"]]
    result.musts = [
        Must("tokenization to bags, times Hugging Face", rates["bags"] / rates["hf"], 6.0, at_least=True),
        Must("bags and segments, times Hugging Face", rates["memory"] / rates["hf"], 6.0, at_least=True),
        Must("forward bytes per distinct token, worst level", max(p["forward"] for p in levels), 2.2),
        Must("postings bytes per distinct token, worst level", max(p["postings"] for p in levels), 4.2),
    ]
    return result


# In the child


def _child(step: str, path: str) -> None:
    texts: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))
    if step == "sizes":
        print(json.dumps(_sizes(texts)))
        return
    with tempfile.TemporaryDirectory() as folder:
        call = _prepared(step, texts, Path(folder))
        before, _ = memory_bytes()
        _, seconds = clocked(call)
        _, peak = memory_bytes()
    print(json.dumps({"wall": seconds.wall, "cpu": seconds.cpu, "before": before, "peak": peak}))


def _prepared(step: str, texts: list[str], folder: Path) -> Callable[[], object]:
    """The step, ready to run: models are loaded, caches are empty."""
    from sidr_rag.encoder.resolve import DEFAULT_FOLDER

    if step.startswith("hf"):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(DEFAULT_FOLDER / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()

        def encode() -> int:
            n = 0
            for i in range(0, len(texts), _BATCH):
                encodings = tokenizer.encode_batch_fast(texts[i : i + _BATCH], add_special_tokens=False)
                n += sum(len(set(e.ids)) for e in encodings) if step == "hf_bags" else len(encodings)
            return n

        return encode
    from sidr_rag.encoder import load_encoder

    encoder = load_encoder()
    if step == "bags":
        return lambda: encoder.tokenizer.counts(texts)
    from sidr_rag.engine import SiDR
    from sidr_rag.index.store import Store
    from sidr_rag.options import new_settings, resolve_weighting

    settings = new_settings("default", encoder)
    if step == "memory":
        store = Store.in_memory(settings, encoder.tokenizer)
    else:
        store = Store.create(folder / "store", settings, encoder.tokenizer)
    sidr = SiDR(store, encoder, resolve_weighting("default", encoder))
    return lambda: sidr.add(texts)


def _sizes(texts: list[str]) -> dict[str, Any]:
    """Bytes per entry of each level, from the arrays of the segment files."""
    from sidr_rag import SiDR
    from sidr_rag.index.arrays import read_arrays

    levels: dict[int, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        SiDR.from_texts(texts, path=Path(folder) / "store").close()
        files = sorted((Path(folder) / "store" / "segments").glob("*.seg"))
        for file in files:
            arrays, meta = read_arrays(file)
            for i, threshold in enumerate(int(t) for t in meta["levels"].split(",")):
                sums = levels.setdefault(threshold, {"entries": 0, "forward": 0, "postings": 0})
                sums["entries"] += len(arrays[f"{i}.doc_dims"])
                sums["forward"] += arrays[f"{i}.doc_dims"].nbytes + arrays[f"{i}.doc_lens"].nbytes
                sums["postings"] += sum(arrays[f"{i}.{part}"].nbytes for part in ("rows", "term_dims", "term_lens"))
        file_bytes = sum(file.stat().st_size for file in files)
    return {
        "segments": len(files),
        "file_bytes": file_bytes,
        "levels": [
            {
                "threshold": threshold,
                "entries": sums["entries"],
                "forward": sums["forward"] / sums["entries"],
                "postings": sums["postings"] / sums["entries"],
            }
            for threshold, sums in sorted(levels.items())
        ],
    }


if __name__ == "__main__":
    main()
