"""Measurements in processes of their own: nothing is warm but what the benchmark warmed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}


def run_child(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run this Python with the arguments from the repository's root; the last line it prints is the JSON result.

    Raises:
        SystemExit: if the child fails; its own messages have then been shown.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"a measurement failed with exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])
