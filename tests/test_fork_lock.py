import os
import signal
import threading

import pytest
from stub_encoders import StubEncoder

from sidr_rag.fork_lock import ForkLock


def exit_status(work):
    """Of a forked child that runs `work`: 0, or the alarm that ended its waiting."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_it_excludes_other_threads():
    lock, seen = ForkLock(), []

    def work(name):
        for _ in range(300):
            with lock:
                seen.append((name, "in"))
                seen.append((name, "out"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(a[0] == b[0] for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_it_is_released_after_an_error():
    lock = ForkLock()

    def fail():
        with lock:
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_finds_it_free():
    lock = ForkLock()
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)

    def child():
        with lock, ForkLock():
            pass

    try:
        assert exit_status(child) == 0
    finally:
        done.set()
        thread.join(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_rerank_while_the_parent_s_threads_do(make, tokenizer):
    sidr = make(encoder=StubEncoder(tokenizer, spread=2))
    sidr.add([f"copper {chr(97 + i)}" for i in range(26)], ids=[str(i) for i in range(26)])
    expected = sidr.search("copper", rerank=20)
    full = sidr.search("copper", search="full")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            sidr.search("copper", rerank=20)
            sidr.search("copper", search="auto")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()

    def child():
        assert sidr.search("copper", rerank=20) == expected
        assert sidr.search("copper", search="full") == full
        assert sidr.costs().searches > 0

    try:
        assert [exit_status(child) for _ in range(8)] == [0] * 8
    finally:
        stop.set()
        for t in threads:
            t.join(60)
