"""Counting by other processes: the same counts, in order, in bounded memory, and a clean end whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from sidr_rag.errors import InvalidTypeError, SidrError
from sidr_rag.text import BagTokenizer
from sidr_rag.text.counting import gathered
from sidr_rag.text.workers import CountingWorkers
from sidr_rag.types import TokenCounts


def assert_same(a: TokenCounts, b: TokenCounts) -> None:
    assert a.dim == b.dim
    for name in ("indptr", "dims", "counts", "lengths"):
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype, name
        assert np.array_equal(x, y), name


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def small_batches(monkeypatch) -> None:
    for name, value in {"_BATCH_TEXTS": 7, "_AHEAD_TEXTS": 60, "_WORTH_TEXTS": 20}.items():
        monkeypatch.setattr(f"sidr_rag.text.workers.{name}", value)


@pytest.fixture
def workers(bag_tokenizer, small_batches) -> Iterator[CountingWorkers[str]]:
    with CountingWorkers[str](bag_tokenizer, 2) as made:
        yield made


def same(text: str) -> str:
    return text


def test_counts_equal_those_of_one_process(workers, bag_tokenizer, sample_texts) -> None:
    texts = [*sample_texts, "\ud800 lone", "", ""]
    items = workers.ahead(texts, same)
    while block := list(islice(items, 50)):
        wanted = block[::-1] + block[:3]  # in any order, and repeated
        assert_same(workers.counts(wanted), bag_tokenizer.counts(wanted))
    assert len(workers._processes) == 2
    assert_same(workers.counts(["never seen before"]), bag_tokenizer.counts(["never seen before"]))


def test_whole_text_tokenizers(small_batches, sample_texts) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    hf = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "river": 2, "and": 3}, unk_token="[UNK]"))
    hf.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = BagTokenizer(hf.to_str(), normalization="none")
    with CountingWorkers[str](tokenizer, 1) as workers:
        texts = list(workers.ahead(sample_texts[:100], same))
        assert_same(workers.counts(texts), tokenizer.counts(texts))
        assert len(workers._processes) == 1


def test_only_this_thread_and_block_use_them(workers, bag_tokenizer, sample_texts, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(workers, "counts", lambda texts: asked.append(list(texts)))
    with bag_tokenizer.counting_with(workers):
        bag_tokenizer.counts(["inside"])
        with pytest.raises(ZeroDivisionError), bag_tokenizer.counting_with(workers):
            raise ZeroDivisionError
    bag_tokenizer.counts(["outside"])
    assert asked == [["inside"]]


def test_few_texts_start_nothing(bag_tokenizer) -> None:
    with CountingWorkers[str](bag_tokenizer, 2) as workers:
        texts = list(workers.ahead(["a river", "a stone"] * 100, same))
        assert_same(workers.counts(texts), bag_tokenizer.counts(texts))
        assert workers._processes == []


def test_a_stream_is_read_a_bounded_part_ahead(workers) -> None:
    read = 0

    def stream() -> Iterator[str]:
        nonlocal read
        for read in range(1, 2000):
            yield f"record {read} of a stream"

    for handed_out, _ in enumerate(workers.ahead(stream(), same), start=1):
        assert read - handed_out <= 60 + 7
        if handed_out % 50 == 0:
            workers.counts([])
        assert len(workers._found) <= 50 + 2 * 7
    assert handed_out == 1999


def test_an_error_of_the_stream_comes_in_its_place(workers, bag_tokenizer) -> None:
    def stream() -> Iterator[str]:
        yield from (f"text {i}" for i in range(45))
        raise KeyError("of the stream")

    got: list[str] = []
    with pytest.raises(KeyError, match="of the stream"):
        got.extend(workers.ahead(stream(), same))
    assert got == [f"text {i}" for i in range(45)]
    assert_same(workers.counts(got), bag_tokenizer.counts(got))


def test_an_error_in_a_process_is_raised_here(workers) -> None:
    items = list(workers.ahead([*(f"text {i}" for i in range(30)), b"no text"], same))
    with pytest.raises(InvalidTypeError, match=r"texts\[2\] must be a str, not bytes"):
        workers.counts(items)


def test_a_killed_process_is_an_error_and_no_hang(workers) -> None:
    items = workers.ahead((f"text {i}" for i in range(500)), same)
    first = list(islice(items, 10))
    for process in workers._processes:
        process.send_signal(signal.SIGKILL)
    with pytest.raises(SidrError, match=r"num_workers=2: a counting process was ended by SIGKILL.*num_workers=0"):
        workers.counts([*first, *items])


def test_no_process_outlives_its_call(bag_tokenizer, small_batches) -> None:
    with CountingWorkers[str](bag_tokenizer, 2) as workers:
        list(islice(workers.ahead((f"text {i}" for i in range(500)), same), 10))
        pids = [process.pid for process in workers._processes]
        assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


def test_processes_end_when_their_parent_is_gone(bag_tokenizer, small_batches) -> None:
    with CountingWorkers[str](bag_tokenizer, 1) as workers:
        items = workers.ahead((f"text {i}" for i in range(100)), same)
        workers.counts(list(items))
        (process,) = workers._processes
        process.stdin.close()  # what the system does with a dead parent's pipes
        process.wait(timeout=60)
        assert process.returncode == 0


def test_gathered_rows_may_repeat_and_be_empty(bag_tokenizer) -> None:
    parts = [bag_tokenizer.counts(["the cat and the dog", ""]), bag_tokenizer.counts(["a river"])]
    found = gathered(parts, np.array([1, 0, 0, 0]), np.array([0, 1, 0, 0]))
    assert_same(found, bag_tokenizer.counts(["a river", "", "the cat and the dog", "the cat and the dog"]))
    none = np.empty(0, np.int64)
    assert_same(gathered(parts, none, none), bag_tokenizer.counts([]))
