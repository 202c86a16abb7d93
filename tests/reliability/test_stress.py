import pytest


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_eight_readers_and_a_writer(fast, where):
    from benchmarks.reliability.stress import run_stress

    figures = run_stress(5, fast / "store" if where == "folder" else None)
    assert figures["groups replaced"] > 5
    assert figures["searches for the anchors"] > 20
    assert figures["searches for a group"] > 20


def test_reading_processes_beside_a_writing_one(prove):
    assert prove("processes", "--seconds", 3)["commits"] > 10
