"""Run the benchmarks, each in a process of its own, and write their tables: half an hour in all, most of it quality.

On a shared machine set OMP_NUM_THREADS=1 for `quality`: torch's threads wait for each other, and a busy neighbour
then costs a multiple of what the second core gives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.children import ROOT
from benchmarks.results import MARKDOWN, ORDER, write_markdown


def main() -> None:
    """Run all benchmarks, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks, and write their tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ORDER)}; all by default")
    parser.add_argument("--report-only", action="store_true", help="only make RESULTS.md of the JSON files there are")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(ORDER))
    if unknown:
        parser.error(f"unknown benchmarks {', '.join(unknown)}; known are {', '.join(ORDER)}")
    failed = []
    for name in () if arguments.report_only else arguments.names or ORDER:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, check=False).returncode:
            failed.append(name)
    write_markdown()
    print(f"tables: {MARKDOWN.relative_to(ROOT)}")
    if failed:
        raise SystemExit(f"did not run to the end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
