"""Run one of the proofs, in its long form by default, and print its figures as one line of JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> None:
    """Run the proof that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to make the stores; a temporary folder by default")
    names = parser.add_subparsers(dest="name", required=True)
    for name, (_, about, options) in PROOFS.items():
        own = names.add_parser(name, help=about)
        for option, default in options.items():
            own.add_argument(f"--{option}", type=type(default), default=default, help=f"{default} by default")
    arguments = parser.parse_args(argv)
    run, _, options = PROOFS[arguments.name]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures = run(Path(folder), **{option: getattr(arguments, option) for option in options})
    print(json.dumps({"proof": arguments.name, **figures}))


def _kill(where: Path, rounds: int, seed: int) -> dict[str, Any]:
    from benchmarks.reliability.kill import run_kills

    return run_kills(rounds, seed, where)


def _faults(where: Path, stride: int) -> dict[str, Any]:
    from benchmarks.reliability.faults import run_faults

    return run_faults(where, stride)


def _full_disk(where: Path, steps: int) -> dict[str, Any]:
    from benchmarks.reliability.full_disk import run_full, run_limits

    return {**run_limits(where, steps), "full file system": run_full(where) or "cannot be mounted here"}


def _syscalls(where: Path, stride: int) -> dict[str, Any]:
    from benchmarks.reliability.syscalls import available, run_syscalls

    return run_syscalls(where, stride=stride) if available() else {"skipped": "strace is not here"}


def _derived(where: Path, edits: int, seed: int) -> dict[str, Any]:
    from benchmarks.reliability.damage import run_derived

    return run_derived(where, edits, seed)


def _database(where: Path, edits: int, seed: int) -> dict[str, Any]:
    from benchmarks.reliability.database_damage import run_database

    return run_database(where, edits, seed)


def _stress(where: Path, seconds: float, memory: float) -> dict[str, Any]:
    from benchmarks.reliability.stress import run_stress

    in_memory = run_stress(memory, None) if memory else {}
    return {"in a folder": run_stress(seconds, where / "store"), "in memory": in_memory}


def _processes(where: Path, seconds: float) -> dict[str, Any]:
    from benchmarks.reliability.processes import run_processes

    return run_processes(seconds, where / "store")


def _stateful(where: Path, examples: int, steps: int) -> dict[str, Any]:
    from benchmarks.reliability.parts import Parts
    from benchmarks.reliability.stateful import run_machine

    parts = Parts.load()
    return {
        "in a folder": run_machine(parts, examples=examples, steps=steps, in_memory=False),
        "in memory": run_machine(parts, examples=examples, steps=steps, in_memory=True),
    }


def _fuzz(where: Path, examples: int) -> dict[str, Any]:
    from benchmarks.reliability.fuzz import run_fuzz
    from benchmarks.reliability.parts import Parts

    return dict(run_fuzz(Parts.load(), examples))


PROOFS: dict[str, tuple[Callable[..., dict[str, Any]], str, dict[str, Any]]] = {
    "kill": (_kill, "SIGKILL of the writer at random instants", {"rounds": 2000, "seed": 1}),
    "syscalls": (_syscalls, "a kill or a fault at every system call, with strace", {"stride": 1}),
    "faults": (_faults, "every file operation fails, once or lastingly", {"stride": 1}),
    "full-disk": (_full_disk, "file size limits, and a file system that is full", {"steps": 100}),
    "derived": (_derived, "segments and embeddings damaged", {"edits": 3000, "seed": 1}),
    "database": (_database, "passages.db edited at random", {"edits": 20_000, "seed": 1}),
    "stress": (_stress, "8 reading threads and a writer", {"seconds": 120.0, "memory": 30.0}),
    "processes": (_processes, "reading processes beside a writing one", {"seconds": 60.0}),
    "stateful": (_stateful, "any order of calls against a dictionary", {"examples": 300, "steps": 50}),
    "fuzz": (_fuzz, "any text, id, metadata and filter", {"examples": 2000}),
}


if __name__ == "__main__":
    main()
