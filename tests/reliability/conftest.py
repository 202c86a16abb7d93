import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # the proofs live beside the benchmarks, which are not installed


@pytest.fixture(scope="session")
def parts():
    from benchmarks.reliability.parts import Parts

    return Parts.load()


@pytest.fixture
def fast(tmp_path):
    """An empty folder in memory where there is such a thing: what is killed and damaged here needs no real disk."""
    import tempfile

    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def prove(fast):
    """A function (name, *options) -> figures of a proof, run in a process of its own that forks and kills."""

    def run(name, *options):
        command = [sys.executable, "-m", "benchmarks.reliability", "--folder", str(fast), name, *map(str, options)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
