import pytest

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")


def test_a_killed_writer_leaves_the_state_before_or_after(prove):
    figures = prove("kill", "--rounds", 200)
    assert figures["kills"] == 200
    assert figures["calls acknowledged"] > 200
    assert figures["searches compared"] == 200 * 10
    assert figures["in flight, found before"] > 0


def test_kills_and_faults_at_system_calls(fast, parts):
    from benchmarks.reliability.syscalls import available, run_syscalls

    if not available():
        pytest.skip("strace is not here, or may not trace")
    figures = run_syscalls(fast, names=["replace"], stride=4)
    assert figures["injections"] >= 10
    assert figures["kill: call killed, found before"] > 0
    assert figures["no space: call refused"] > 0
