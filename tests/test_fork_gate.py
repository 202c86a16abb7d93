import os
import threading
import time

import pytest
from stub_encoders import StubEncoder

from sidr_rag.fork_gate import ForkGate

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_fork_waits_for_the_threads_inside_and_lets_no_other_in():
    gate, inside, leave, order = ForkGate(), threading.Event(), threading.Event(), []

    def stay():
        with gate, gate:
            inside.set()
            leave.wait(60)
            order.append("left")

    def fork():
        gate.before_fork()
        order.append("forked")
        time.sleep(0.05)
        gate.after_fork_in_parent()

    def enter():
        with gate:
            order.append("entered")

    threads = [in_thread(stay)]
    assert inside.wait(60)
    threads.append(in_thread(fork))
    time.sleep(0.05)
    threads.append(in_thread(enter))
    time.sleep(0.05)
    assert order == []
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["left", "forked", "entered"]


def test_a_thread_inside_may_fork_and_its_child_is_inside_alone():
    gate = ForkGate()
    with gate:
        gate.before_fork()  # of others there are none: no waiting
        gate.after_fork_in_child()
        with gate:
            pass
    gate.before_fork()
    gate.after_fork_in_parent()
    with gate:
        pass


def test_an_error_inside_opens_it_again():
    gate = ForkGate()
    with pytest.raises(ZeroDivisionError), gate:
        raise ZeroDivisionError
    start = time.monotonic()
    gate.before_fork()
    assert time.monotonic() - start < 10  # it would wait 20 s for a thread that is inside
    gate.after_fork_in_parent()


@pytest.mark.parametrize("folder", [None, "store"])
def test_children_search_and_rerank_while_the_parent_s_threads_do(make, tokenizer, tmp_path, folder, exit_status):
    sidr = make(folder and tmp_path / folder, encoder=StubEncoder(tokenizer, spread=2))
    sidr.add([f"copper {chr(97 + i)}" for i in range(26)], ids=[str(i) for i in range(26)])
    expected = sidr.search("copper", rerank=20)
    full = sidr.search("copper", search="full")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            sidr.search("copper", rerank=20)
            sidr.search("copper", search="auto")

    threads = [in_thread(work) for _ in range(2)]

    def child():
        assert sidr.search("copper", rerank=20) == expected
        assert sidr.search("copper", search="full") == full
        assert sidr.costs().searches > 0

    try:
        assert [exit_status(child) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        for t in threads:
            t.join(60)
