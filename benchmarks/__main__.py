"""Run the benchmarks, each in a process of its own, and write their tables.

The passages, and the indexes that several tables share, are kept in a folder: a run that was cut off is taken up by
naming the tables that are missing. Peers come with `pip install -r requirements-bench.txt`; a table says which are
absent.

On a shared machine set OMP_NUM_THREADS=1 for `quality`: torch's threads wait for each other, and a busy neighbour
then costs a multiple of what the second core gives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.options import default_folder
from benchmarks.results import MARKDOWN, ORDER, write_markdown

_BY_NAME = ("device_search", "late_dev")  # a GPU is needed; `python -m benchmarks.late --split dev` makes it


def main() -> None:
    """Run all benchmarks, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks, and write their tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ORDER)}; all by default")
    parser.add_argument("--report-only", action="store_true", help="only make RESULTS.md of the JSON files there are")
    parser.add_argument("--small", action="store_true", help="try those that have a small form; writes no result")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="kept passages and indexes (%(default)s)")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(ORDER))
    if unknown:
        parser.error(f"unknown benchmarks {', '.join(unknown)}; known are {', '.join(ORDER)}")
    failed = []
    for name in () if arguments.report_only else arguments.names or [n for n in ORDER if n not in _BY_NAME]:
        given = _shared_arguments(name, small=arguments.small, folder=arguments.folder)
        if given is None:
            print(f"== {name}: no small form")
            continue
        print(f"== {name}", flush=True)
        start = time.monotonic()
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *given], cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    if not arguments.small:
        write_markdown()
        print(f"tables: {MARKDOWN.relative_to(ROOT)}")
    if failed:
        raise SystemExit(f"did not run to the end: {', '.join(failed)}")


def _shared_arguments(name: str, *, small: bool, folder: Path) -> list[str] | None:
    """What a script understands of `benchmarks.options`; None if it has no small form and that is asked for."""
    if "make_parser(" not in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8"):
        return None if small else []
    return [*(["--small"] if small else []), "--folder", str(folder)]


if __name__ == "__main__":
    main()
