"""Run the paper's tables, each in a process of its own, and write `benchmarks/paper.md`.

What is slow to make (indexes, embeddings, trained models) is kept in a folder, and each table's figures in
`benchmarks/results/paper`: a run that was cut off is taken up with `--missing`, or by naming the tables. Set
OMP_NUM_THREADS=1 on a shared machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.options import default_folder
from benchmarks.paper.page import section, write_page
from benchmarks.paper.rows import PaperTable, read
from benchmarks.paper.setup import Setup

TABLES = ("accuracy", "overlap", "beir", "latency", "ablations", "in_training", "terms", "costs", "chunks")


def main() -> None:
    """Run all tables, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--missing", action="store_true", help="only the tables that have no figures yet")
    parser.add_argument("--report-only", action="store_true", help="only make paper.md of the figures there are")
    parser.add_argument("--small", action="store_true", help="try every line at tiny sizes; writes no figures")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="keeps what is slow (%(default)s)")
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", help="measure only these judged sets now; others stay as are"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(TABLES))
    if unknown:
        parser.error(f"unknown tables {', '.join(unknown)}; known are {', '.join(TABLES)}")
    names = [n for n in arguments.names or TABLES if not (arguments.missing and (read(n) or {}).get("whole"))]
    failed = []
    if not arguments.report_only:
        for name in names:
            if not _one(name, arguments, alone=len(names) == 1 or arguments.small):
                failed.append(name)
    if not arguments.small:
        print(f"page: {write_page(_empty, TABLES).relative_to(ROOT)}")
    if failed:
        raise SystemExit(f"did not run to the end: {', '.join(failed)}")


def _one(name: str, arguments: argparse.Namespace, *, alone: bool) -> bool:
    """Run a table here, or in a process of its own; whether it came to its end."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    if alone:
        table = run_table(name, Setup(arguments.folder, arguments.small, arguments.sets))
        print("\n".join(section(table, None)))
        if not arguments.small:
            table.write()
    else:
        command = [sys.executable, "-m", "benchmarks.paper", name, "--folder", str(arguments.folder)]
        command += ["--sets", *arguments.sets] if arguments.sets else []
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return False
    print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    return True


def run_table(name: str, setup: Setup) -> PaperTable:
    """The figures of one table."""
    table: PaperTable = import_module(f"benchmarks.paper.{name}").run(setup)
    return table


def _empty(name: str) -> PaperTable:
    table: PaperTable = import_module(f"benchmarks.paper.{name}").empty()
    return table


if __name__ == "__main__":
    main()
