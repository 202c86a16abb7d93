"""Run one of the proofs and print its figures as one line of JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path


def main() -> None:
    """Run the proof that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to make the stores; a temporary folder by default")
    names = parser.add_subparsers(dest="name", required=True)
    kill = names.add_parser("kill", help="SIGKILL of the writer at random instants")
    kill.add_argument("--rounds", type=int, default=2000)
    kill.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        print(json.dumps(_run(arguments, Path(folder))))


def _run(arguments: argparse.Namespace, where: Path) -> object:
    if arguments.name == "kill":
        from benchmarks.reliability.kill import run_kills

        return run_kills(arguments.rounds, arguments.seed, where)
    raise SystemExit(f"{arguments.name} is not known")


if __name__ == "__main__":
    main()
