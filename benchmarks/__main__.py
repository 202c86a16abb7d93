"""Run the benchmarks, each in a process of its own, and write their tables."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.children import ROOT
from benchmarks.results import MARKDOWN, ORDER, write_markdown


def main() -> None:
    """Run all benchmarks, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ORDER, []], help="which; all of them by default")
    parser.add_argument("--report-only", action="store_true", help="only make RESULTS.md of the JSON files there are")
    arguments = parser.parse_args()
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
