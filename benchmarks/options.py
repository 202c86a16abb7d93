"""The arguments that benchmarks share, and where they keep what is slow to make."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path


def make_parser(description: str | None, *, rounds: int | None = None) -> argparse.ArgumentParser:
    """A parser with `--small`, `--folder` and, where rounds are given, `--rounds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--small", action="store_true", help="a few seconds at small sizes, to try the script; writes no result"
    )
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="keeps passages and indexes between runs (%(default)s)"
    )
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (%(default)s)")
    return parser


def default_folder() -> Path:
    """A folder of this user under the machine's temporary folder."""
    return Path(tempfile.gettempdir()) / f"sidr-benchmarks-{os.getuid()}"
