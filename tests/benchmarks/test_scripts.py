"""Every script at small sizes: it runs to its end, shows its tables, and leaves the committed results alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="module")
def run_small(tmp_path_factory):
    """A function (script, *arguments) -> what it printed; the scripts share a folder."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data is not on this machine")
    folder = tmp_path_factory.mktemp("kept")

    def run(script, *arguments):
        committed = ROOT / "benchmarks" / "results" / f"{script}.json"
        before = committed.read_bytes() if committed.exists() else None
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{script}", "--small", "--folder", str(folder), *arguments],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=550,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert (committed.read_bytes() if committed.exists() else None) == before
        return done.stdout

    return run


@pytest.mark.benchmark
def test_one_query(run_small):
    only = ("sidr", "sidr_encode", "torch")
    shown = run_small("one_query", "--rounds", "2", "--passages", "500", "--only", *only)
    assert "**500 passages. 768 dimensions, flat tail" in shown
    assert "| 500 passages: search_vectors, flat, recall | 1.000 | >= 1.0 | yes |" in shown
    assert "| the authors': torch CSR product, topk |" in shown
    assert "| sidr: encoding the question alone |" in shown


def test_batch(run_small):
    shown = run_small("batch", "--rounds", "2", "--passages", "500", "--only", "sidr", "plain", "scipy")
    assert "**500 passages, 768 dimensions, flat tail**" in shown
    assert "| plain accumulation (numba) |" in shown


@pytest.mark.benchmark
def test_index_peers(run_small):
    only = ("sidr_memory", "sidr", "hf", "authors", "scipy")
    shown = run_small("index_peers", "--rounds", "1", "--only", *only)
    assert "| CPU time of encode_batch_fast alone, of ours in memory |" in shown
    assert "| CPU time of the authors' builder, of ours in memory |" in shown
    assert "| sidr: SiDR.add into a folder, texts and ids stored |" in shown


def test_passage_bytes(run_small):
    shown = run_small("passage_bytes", "--only", "sidr", "scipy")
    assert "| one level, inverted, bytes a passage of 75.0 distinct tokens |" in shown
    assert "| count >= 4 |" in shown


def test_adding_names_its_parts(run_small):
    shown = run_small("adding", "--rounds", "2")
    assert "100 passages until searchable and durable" in shown
    assert "| commit in SQLite (syncs) |" in shown
    assert "| beside: write and sync the segment file |" in shown


@pytest.mark.benchmark
def test_pruning(run_small):
    pytest.importorskip("ir_measures")
    shown = run_small("pruning", "--rounds", "1")
    assert "| 64 (the default) | off |" in shown
    assert "| 8 | 0.4 |" in shown


@pytest.mark.benchmark
def test_first_answer(run_small):
    pytest.importorskip("torch")
    if not (SHARED / "models" / "all-MiniLM-L6-v2").is_dir():
        pytest.skip("the dense model is not on this machine")
    shown = run_small("first_answer", "--rounds", "1")
    assert "| CPU time of the dense pipeline to the first answer, in ours |" in shown


def test_growth(run_small):
    pytest.importorskip("matplotlib")
    shown = run_small("growth", "--rounds", "1")
    assert "| 800 |" in shown
    assert "Extrapolated to 21,000,000 passages" in shown


@pytest.mark.benchmark
@pytest.mark.parametrize("script", ["search_speed", "store", "startup"])
def test_the_other_scripts(run_small, script):
    assert "- Command: `python -m benchmarks." in run_small(script, "--rounds", "1")
