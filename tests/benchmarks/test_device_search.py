"""The prepared measurement of search on a GPU runs to its end on the processor, and its check holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT.parent / "shared" / "data" / "train").is_dir(), reason="needs the shared data")
def test_the_prepared_run():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.device_search", "--small"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| sampled searches with other bits than the processor's | 0.000 | <= 0.0 | yes |" in done.stdout
