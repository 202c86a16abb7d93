"""A store object in a forked child, in another process, and in a pickle."""

import itertools
import os
import pickle
import signal
import sqlite3
import threading
import warnings

import pytest

from sidr_rag import SiDR
from sidr_rag.errors import InvalidTypeError, StoreLockedError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture(params=["folder", "memory"])
def filled(request, parts, fast):
    from benchmarks.reliability.faults import docs
    from benchmarks.reliability.model import add_docs

    with parts.create(fast / "store") if request.param == "folder" else parts.memory() as sidr:
        add_docs(sidr, docs("a", 60))
        yield sidr


def ask(sidr, query="amber coral"):
    return [[r.passage.id, r.score] for r in sidr.search(query, k=100, first_stage="lexical")]


def guarded(work):
    """In the child: a lock that the fork left held would hang."""

    def run():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        warnings.simplefilter("ignore")
        return work()

    return run


def test_searching_in_a_child(filled):
    from benchmarks.reliability.parts import in_child

    right = ask(filled)

    def work():
        first = ask(filled)
        both = filled.search(["amber", "coral"], k=3, first_stage="lexical")
        return [first, [len(results) for results in both], len(filled), filled.ids()[:3]]

    assert in_child(guarded(work)) == [right, [3, 3], 60, ["a0", "a1", "a2"]]
    assert ask(filled) == right


def test_a_child_sees_what_the_parent_adds(filled):
    from benchmarks.reliability.parts import in_child

    in_child(guarded(lambda: ask(filled)))
    filled.add(["amber once more"], ids=["later"])
    found = in_child(guarded(lambda: ask(filled)))
    assert "later" in {passage_id for passage_id, _ in found}


def test_writing_in_a_child_while_the_parent_holds_the_lock(parts, fast):
    from benchmarks.reliability.parts import in_child

    def refused(call):
        try:
            call()
        except StoreLockedError as e:
            return str(os.getppid()) in str(e)
        return False

    with parts.create(fast / "store") as sidr:
        sidr.add(["amber"], ids=["one"])

        def work():
            calls = (lambda: sidr.add(["coral"]), lambda: sidr.delete(["one"]), sidr.compact)
            outcomes = [refused(call) for call in calls]
            sidr.close()
            return outcomes

        assert in_child(guarded(work)) == [True, True, True]
        sidr.add(["coral"], ids=["two"])
        assert sidr.ids() == ["one", "two"]

        def other():
            with parts.open(fast / "store") as second:
                return refused(lambda: second.add(["coral"]))

        # The child that closed its object has not given the parent's lock back.
        assert in_child(guarded(other)) is True
    with parts.open(fast / "store") as sidr:
        assert sidr.ids() == ["one", "two"]


def test_writing_in_a_child_when_the_parent_has_not_written(parts, fast):
    from benchmarks.reliability.parts import in_child

    parts.create(fast / "store").close()
    with parts.open(fast / "store") as sidr:
        assert ask(sidr) == []
        in_child(guarded(lambda: sidr.add(["amber"], ids=["child"])))
        assert sidr.ids() == ["child"]
        assert [passage_id for passage_id, _ in ask(sidr)] == ["child"]
        sidr.add(["amber"], ids=["parent"])
        assert sidr.ids() == ["child", "parent"]


def test_a_child_that_ends_leaves_the_parents_store_whole(parts, fast):
    """Closing what was inherited must not checkpoint, unlock or remove anything under the parent."""
    from benchmarks.reliability.parts import in_child

    with parts.create(fast / "store") as sidr:
        for i in range(12):
            sidr.add([f"amber {i}"], ids=[str(i)])
            in_child(guarded(lambda: [ask(sidr), sidr.close()][1]))
        assert len(ask(sidr)) == 12
        assert (fast / "store" / "passages.db-wal").exists()
    connection = sqlite3.connect(fast / "store" / "passages.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    with parts.open(fast / "store") as sidr:
        assert sidr.ids() == [str(i) for i in range(12)]


def test_forks_of_a_store_in_memory_while_threads_write_and_search(parts):
    """The child has none of the parent's threads, and none of the locks they held."""
    from benchmarks.reliability.parts import in_child

    with parts.memory() as sidr:
        sidr.add(["anchor"] * 5, ids=list("abcde"))
        ask(sidr, "anchor")
        stop = threading.Event()
        faults = []

        def run(call):
            try:
                while not stop.is_set():
                    call()
            except BaseException as e:
                faults.append(e)

        numbers = itertools.cycle(range(40))
        calls = (lambda: sidr.add(["amber"], ids=[str(next(numbers))]), lambda: ask(sidr, "anchor"))
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        try:
            for _ in range(25):
                found = in_child(guarded(lambda: [ask(sidr, "anchor"), sidr.close()][0]))
                assert [passage_id for passage_id, _ in found] == list("abcde")
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        assert not faults


def test_forks_while_the_store_merges(parts, fast):
    """After `add` has returned the caller knows of no thread, and may fork."""
    from benchmarks.reliability.parts import in_child

    with parts.create(fast / "store") as sidr:
        sidr.add(["anchor"] * 5, ids=list("abcde"))
        for i in range(20):
            for j in range(9):
                sidr.add([f"amber {i}"], ids=[f"{i}-{j}"])
            found = in_child(guarded(lambda: [ask(sidr, "anchor"), sidr.close()][0]))
            assert [passage_id for passage_id, _ in found] == list("abcde")
        assert len(sidr) == 5 + 20 * 9


def test_pickling(parts, fast):
    with parts.create(fast / "store") as sidr:
        sidr.add(["amber"], ids=["one"], metadatas=[{"page": 3}])
        right = ask(sidr)
        with pickle.loads(pickle.dumps(sidr)) as other:
            assert isinstance(other, SiDR)
            assert ask(other) == right
            assert other.get(["one"])[0].metadata == {"page": 3}
            with pytest.raises(StoreLockedError, match="this process"):
                other.add(["coral"])
        sidr.add(["amber"], ids=["two"])
    with parts.open(fast / "store", read_only=True) as reader, pickle.loads(pickle.dumps(reader)) as other:
        assert len(other) == 2
        with pytest.raises(Exception, match="read_only"):
            other.add(["coral"])


def test_pickling_memory_says_why_not(parts):
    with parts.memory() as sidr, pytest.raises(InvalidTypeError, match="save"):
        pickle.dumps(sidr)


def test_unpickling_what_is_gone(parts, fast):
    import shutil

    from sidr_rag.errors import IndexFormatError

    with parts.create(fast / "store") as sidr:
        data = pickle.dumps(sidr)
    shutil.rmtree(fast / "store")
    with pytest.raises(IndexFormatError):
        pickle.loads(data)
