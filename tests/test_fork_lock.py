import os
import threading

import pytest

from sidr_rag.fork_lock import ForkLock


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
def test_a_forked_child_finds_it_free(exit_status):
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
