"""How fast passages become searchable, from tokenization to a store on disk."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.data import cut_passages, natural_passages
from benchmarks.machine import forget_peak, memory_bytes
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
_LARGE_STEPS = {
    "hf_tenth": "Hugging Face encode_batch_fast, every tenth passage",
    "memory": "SiDR.from_texts in memory",
    "memory_1": "the same, num_workers=1",
    "memory_2": "the same, num_workers=2",
    "folder": "committed to a folder",
    "folder_1": "the same, num_workers=1",
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
        large_runs: dict[str, list[dict[str, Any]]] = {step: [] for step in _LARGE_STEPS}
        for _ in range(arguments.rounds):
            for step in _STEPS:
                runs[step].append(_measured(step, natural))
            for step in _LARGE_STEPS:
                large_runs[step].append(_measured(step, large))
    _result(runs, large_runs, arguments.rounds).write()


def _measured(step: str, texts: Path) -> Any:
    environment = {"TOKENIZERS_PARALLELISM": "true"} if step == "hf_threads" else ONE_CORE
    return run_child(["-m", "benchmarks.indexing", "--child", step, str(texts)], environment)


def _result(
    runs: dict[str, list[dict[str, Any]]],
    large_runs: dict[str, list[dict[str, Any]]],
    rounds: int,
) -> Result:
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
            "Memory is the process's highest resident size less its size before the step, texts excluded, other "
            "processes not counted. With num_workers, CPU seconds are of all processes, their start included; how much "
            "sooner it is depends on how many cores are free.",
            f"The {_N_LARGE:,} passages are the training data's texts cut at 100 words.",
        ],
        ["tokenizers (encode_batch_fast)"],
        ["numpy", "tokenizers", "numba"],
        "python -m benchmarks.indexing",
        raw={"runs": runs, "large_runs": large_runs},
    )
    rows: list[list[Cell]] = []
    for step, done in runs.items():
        wall, extra = median([r["wall"] for r in done]), median([r["peak"] - r["before"] for r in done])
        rows.append([_STEPS[step], rates[step], _N_PASSAGES / wall, rates[step] / rates["hf"], extra / 2**20])
    columns = ("step", "passages per CPU second", "passages per second", "times Hugging Face", "memory, MiB")
    result.tables.append(Table("Speed", columns, rows))
    large_rows: list[list[Cell]] = []
    n_of = {step: _N_LARGE // 10 if step == "hf_tenth" else _N_LARGE for step in large_runs}
    large_rates = {step: n_of[step] / median([r["cpu"] for r in done]) for step, done in large_runs.items()}
    peaks = {step: median([r["peak"] - r["before"] for r in done]) / 2**20 for step, done in large_runs.items()}
    for step, rate in large_rates.items():
        wall = median([r["wall"] for r in large_runs[step]])
        times = rate / large_rates["hf_tenth"]
        large_rows.append([_LARGE_STEPS[step], rate, n_of[step] / wall, times, peaks[step]])
    result.tables.append(Table(f"Speed and memory, {_N_LARGE:,} passages", columns, large_rows))
    result.musts = [
        Must("tokenization to bags, times Hugging Face", rates["bags"] / rates["hf"], 8.0, at_least=True, aim=12.0),
        Must("bags and segments, times Hugging Face", rates["memory"] / rates["hf"], 8.0, at_least=True, aim=12.0),
        Must(
            f"bags and segments of {_N_LARGE:,}, times Hugging Face",
            large_rates["memory"] / large_rates["hf_tenth"],
            8.0,
            at_least=True,
            aim=12.0,
        ),
        Must(
            f"memory above start, {_N_LARGE:,} passages, MiB", max(peaks["memory"], peaks["folder"]), 300.0, aim=200.0
        ),
    ]
    return result


# In the child


def _child(step: str, path: str) -> None:
    texts: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        call = _prepared(step, texts, Path(folder))
        before, _ = memory_bytes()
        forget_peak()
        _, seconds = clocked(call)
        _, peak = memory_bytes()
        others = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = seconds.cpu + others.ru_utime + others.ru_stime
    print(json.dumps({"wall": seconds.wall, "cpu": cpu, "before": before, "peak": peak}))


def _prepared(step: str, texts: list[str], folder: Path) -> Callable[[], object]:
    """The step, ready to run: models are loaded, caches are empty."""
    if step == "hf_tenth":
        step, texts = "hf", texts[::10]
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
    kind, _, n_workers = step.partition("_")
    if kind == "memory":
        store = Store.in_memory(settings, encoder.tokenizer)
    else:
        store = Store.create(folder / "store", settings, encoder.tokenizer)
    sidr = SiDR(store, encoder, resolve_weighting("default", encoder))
    return lambda: sidr.add(texts, num_workers=int(n_workers or 0))


if __name__ == "__main__":
    main()
