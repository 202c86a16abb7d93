import threading

import numpy as np
import pytest

from sidr_rag.encoder import blas_threads
from sidr_rag.encoder.blas_threads import _Threads, few_threads


class Counter:
    def __init__(self, n):
        self.n = n
        self.seen = []

    def get(self):
        return self.n

    def put(self, n):
        self.n = n
        self.seen.append(n)


def test_the_last_user_restores_what_the_first_one_found():
    counter = Counter(8)
    threads = _Threads(counter.get, counter.put)
    with threads.one():
        assert counter.n == 1
        with threads.one():
            assert counter.n == 1
        assert counter.n == 1
    assert counter.n == 8
    assert counter.seen == [1, 8]


def test_it_is_restored_after_an_error_and_in_many_threads():
    counter = Counter(4)
    threads = _Threads(counter.get, counter.put)
    with pytest.raises(ZeroDivisionError), threads.one():
        raise ZeroDivisionError

    def work():
        for _ in range(200):
            with threads.one():
                assert counter.n == 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.n == 4


def test_one_thread_is_left_alone():
    counter = Counter(1)
    with _Threads(counter.get, counter.put).one():
        pass
    assert counter.seen == []


def test_only_short_texts_lower_numpys_own_blas(monkeypatch):
    counter = Counter(2)
    threads = _Threads(counter.get, counter.put)
    monkeypatch.setattr(blas_threads, "_openblas", lambda: threads)
    with few_threads(12):
        assert counter.n == 1
    with few_threads(5000):
        assert counter.n == 2
    monkeypatch.setattr(blas_threads, "_openblas", lambda: None)
    with few_threads(12):
        pass
    assert counter.seen == [1, 2]


def test_the_real_blas_is_found_where_numpy_brings_it():
    threads = blas_threads._openblas()
    if threads is None:
        pytest.skip("NumPy uses another BLAS here")
    before = threads._get()
    with threads.one():
        assert threads._get() == 1
        assert np.allclose(np.ones((50, 50)) @ np.ones((50, 50)), 50)
    assert threads._get() == before
