import pytest

# A busy machine does little in a few seconds: then it is asked for more of them.
SECONDS = (2, 8, 32)


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_eight_readers_and_a_writer(fast, where):
    from benchmarks.reliability.stress import run_stress

    least = {"groups replaced": 5, "searches for the anchors": 20, "searches for a group": 20}
    for seconds in SECONDS:
        figures = run_stress(seconds, fast / f"store-{seconds}" if where == "folder" else None)
        if all(figures[what] > n for what, n in least.items()):
            return
    pytest.fail(f"too little was done: {figures}")


def test_reading_processes_beside_a_writing_one(prove):
    assert any(prove("processes", "--seconds", seconds)["commits"] > 10 for seconds in SECONDS)
