import json
import threading
import warnings

import numpy as np
import pytest
from stub_encoders import TinyTokenizer, stub_settings

from sidr_rag.errors import (
    IndexFormatError,
    InvalidInputError,
    ReadOnlyError,
    SidrError,
    StorageError,
    StoreLockedError,
)
from sidr_rag.index import writer as writer_module
from sidr_rag.index.passages import Row
from sidr_rag.index.segment import Segment
from sidr_rag.index.snapshot import write_snapshot
from sidr_rag.index.store import Store
from sidr_rag.search.filters import parse_filter
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import BINARY
from sidr_rag.types import SparseVectors

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def rows(*texts, ids=None, metadata="{}"):
    names = ids or [f"p-{t}" for t in texts]
    return [Row(0, i, None, t, metadata) for i, t in zip(names, texts, strict=True)]


@pytest.fixture
def make(tiny):
    """A function (path=None) -> store, made or opened; closed at the end."""
    made = []

    def build(path=None, tokenizer=tiny, **arguments):
        if path is None:
            made.append(Store.in_memory(stub_settings(tokenizer), tokenizer))
        elif (path / "sidr.json").exists():
            made.append(Store.open(path, tokenizer, **arguments))
        else:
            made.append(Store.create(path, stub_settings(tokenizer), tokenizer))
        return made[-1]

    yield build
    for store in made:
        store.close()


@pytest.fixture(params=["memory", "folder"])
def store(request, make, tmp_path):
    return make(tmp_path / "s" if request.param == "folder" else None)


def found(store, letter, k=1000):
    query = SparseVectors.from_rows([([ord(letter) - 97], [1.0])], 26)
    [(seqs, _)] = search_index(store.current(), query, BINARY, k)
    kept = store.fetch([int(s) for s in seqs])
    return [kept[int(s)].id for s in seqs]


def contents(store):
    return [(r.id, r.text) for r in store.scan()]


def check_consistent(store):
    """Index and table name the same passages, and the statistics are those of their texts."""
    index = store.current()
    kept = list(store.scan())
    assert index.live_seqs().tolist() == [r.seq for r in kept]
    assert index.n_live == len(kept)
    counts = store.tokenizer.counts(r.content for r in kept)
    assert index.total_length == int(counts.lengths.sum())
    assert index.df.tolist() == np.bincount(counts.dims, minlength=26).tolist()


def test_added_passages_are_found_at_once(store):
    assert store.add(rows("a b", "b c")) == []
    assert found(store, "b") == ["p-a b", "p-b c"]
    assert found(store, "z") == []
    check_consistent(store)


def test_replacing_gives_a_new_place_in_the_order(store):
    store.add(rows("a one", "a two", ids=["x", "y"]))
    assert store.add(rows("a three", ids=["x"])) == [1]
    assert found(store, "a") == ["y", "x"]
    assert contents(store) == [("y", "a two"), ("x", "a three")]
    check_consistent(store)


def test_of_equal_ids_in_one_call_the_last_wins(store, monkeypatch):
    calls = [("x", "a"), ("y", "b"), ("x", "c"), ("z", "d"), ("y", "e")]
    store.add(rows(*(t for _, t in calls), ids=[i for i, _ in calls]))
    assert contents(store) == [("x", "c"), ("z", "d"), ("y", "e")]
    check_consistent(store)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_blocks_do_not_show(store, monkeypatch, size):
    from sidr_rag.index import folder

    monkeypatch.setattr(folder, "_BLOCK", size)
    store.add(rows("q", ids=["x"]))
    calls = [("x", "a"), ("y", "b"), ("x", "c"), ("z", "d"), ("y", "e")]
    store.add(rows(*(t for _, t in calls), ids=[i for i, _ in calls]))
    assert contents(store) == [("x", "c"), ("z", "d"), ("y", "e")]
    assert found(store, "a") == found(store, "b") == found(store, "q") == []
    check_consistent(store)
    with pytest.raises(InvalidInputError, match="'w'"):
        store.add(rows("a", "b", "c", ids=["w", "v", "w"]), "error")
    store.add(rows("f", "g", "h", "i", ids=["w", "x", "w", "u"]), "skip")
    assert contents(store) == [("x", "c"), ("z", "d"), ("y", "e"), ("w", "f"), ("u", "i")]
    check_consistent(store)


def test_conflicts(store):
    store.add(rows("a", ids=["x"]))
    with pytest.raises(InvalidInputError, match="'x'"):
        store.add(rows("b", "c", ids=["y", "x"]), "error")
    assert contents(store) == [("x", "a")]
    store.add(rows("b", "c", ids=["y", "x"]), "skip")
    assert contents(store) == [("x", "a"), ("y", "b")]
    with pytest.raises(InvalidInputError, match="'merge'"):
        store.add(rows("d", ids=["z"]), "merge")
    check_consistent(store)


def test_deleting(store):
    store.add(rows("a", "a b", "b", ids=["x", "y", "z"]))
    assert store.delete(["y", "nobody", "y"]) == [2]
    assert found(store, "a") == ["x"]
    assert store.delete(["y"]) == []
    check_consistent(store)
    store.delete(["x", "z"])
    assert store.current().n_live == 0
    store.add(rows("a", ids=["y"]))
    assert found(store, "a") == ["y"]
    check_consistent(store)


def test_an_error_inside_an_add_leaves_nothing(store, monkeypatch):
    from sidr_rag.index import folder

    monkeypatch.setattr(folder, "_BLOCK", 2)
    store.add(rows("a", "b", ids=["x", "y"]))
    before, files = contents(store), files_of(store)

    def failing():
        yield from rows("c", "d", "e", ids=["x", "w", "v"])
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="own"):
        store.add(failing())
    assert contents(store) == before
    assert files_of(store) == files
    assert found(store, "a") == ["x"]
    assert found(store, "c") == []
    store.add(rows("c", ids=["u"]))
    assert found(store, "c") == ["u"]
    check_consistent(store)


def files_of(store):
    if store.folder is None:
        return []
    return sorted(p.name for p in store.folder.segments.iterdir())


@pytest.mark.parametrize("point", ["save", "commit"])
def test_a_disk_that_refuses_leaves_the_last_state(make, tmp_path, monkeypatch, point):
    from sidr_rag.index.transaction import SqliteTransaction

    store = make(tmp_path / "s")
    store.add(rows("a", ids=["x"]))
    files = files_of(store)

    def refuse(*_):
        raise StorageError(28, "No space left on device")

    monkeypatch.setattr(*((Segment, "save", refuse) if point == "save" else (SqliteTransaction, "commit", refuse)))
    for call in (lambda: store.add(rows("b", ids=["x"])), *([] if point == "save" else [lambda: store.delete(["x"])])):
        with pytest.raises(StorageError):
            call()
    monkeypatch.undo()
    assert contents(store) == [("x", "a")]
    assert files_of(store) == files
    assert found(store, "a") == ["x"]
    store.add(rows("b", ids=["y"]))
    store.close()
    again = make(tmp_path / "s")
    assert contents(again) == [("x", "a"), ("y", "b")]
    check_consistent(again)


def test_a_merge_that_fails_does_not_undo_the_add(make, tmp_path, monkeypatch, caplog):
    store = make(tmp_path / "s")
    for i in range(7):
        store.add(rows(LETTERS[i]))

    def refuse(*_):
        raise StorageError(28, "No space left on device")

    monkeypatch.setattr(writer_module, "merge_segments", refuse)
    store.add(rows("z", ids=["last"]))
    store.wait()
    assert "could not be merged" in caplog.text
    assert found(store, "z") == ["last"]
    monkeypatch.undo()
    store.add(rows("z", ids=["later"]))
    store.wait()
    assert len(store.current().views) == 1
    check_consistent(store)


def test_a_store_is_not_changed_by_what_it_is_reading(store):
    store.add(rows("a", ids=["x"]))

    def nested(write):
        yield from rows("b", ids=["y"])
        write()

    for write in (lambda: store.add(rows("c", ids=["z"])), lambda: store.delete(["x"]), store.compact):
        with pytest.raises(SidrError, match="one at a time"):
            store.add(nested(write))
    assert contents(store) == [("x", "a")]
    store.add(nested(lambda: found(store, "a")))  # reading is no change
    assert contents(store) == [("x", "a"), ("y", "b")]
    check_consistent(store)


def test_segments_stay_few_and_their_files_are_those_of_the_index(make, tmp_path):
    store = make(tmp_path / "s")
    for i in range(120):
        store.add(rows(LETTERS[i % 26], ids=[str(i)]))
        if i % 3 == 0:
            store.delete([str(i - 5)])
        store.wait()
        assert len(store.current().views) <= 8
        assert files_of(store) == sorted(f"{v.name}.seg" for v in store.current().views)
    check_consistent(store)
    tombstones = store.table.state().tombstones
    dead = [int(s) for v in store.current().views if v.live is not None for s in v.segment.seqs[~v.live]]
    assert tombstones == sorted(dead)


def test_compacting_makes_one_segment_without_the_deleted(store):
    for i in range(5):
        store.add(rows(LETTERS[i]))
    store.delete(["p-b"])
    before = contents(store)
    store.compact()
    [view] = store.current().views
    assert view.live is None
    assert view.segment.n_rows == 4
    assert contents(store) == before
    check_consistent(store)
    generation = store.current().generation
    store.compact()
    assert store.current().generation == generation
    store.delete([i for i, _ in before])
    store.compact()
    assert store.current().views == ()


# Other objects and processes


def test_a_reader_sees_every_commit_and_keeps_its_state_while_it_searches(make, tmp_path):
    writer = make(tmp_path / "s")
    reader = make(tmp_path / "s", read_only=True)
    writer.add(rows("a", ids=["x"]))
    assert found(reader, "a") == ["x"]
    before = reader.current()
    writer.add(rows("a", ids=["y"]))
    writer.delete(["x"])
    assert found(reader, "a") == ["y"]
    assert before.live_seqs().tolist() == [1]
    writer.compact()
    assert found(reader, "a") == ["y"]
    check_consistent(reader)


def test_a_read_only_store_writes_nothing(make, tmp_path):
    make(tmp_path / "s").add(rows("a"))
    reader = make(tmp_path / "s", read_only=True)
    before = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file() and "-shm" not in p.name}
    for call in (lambda: reader.add(rows("b")), lambda: reader.delete(["p-a"]), reader.compact):
        with pytest.raises(ReadOnlyError, match="read_only"):
            call()
    assert found(reader, "a") == ["p-a"]
    after = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file() and "-shm" not in p.name}
    assert after == before


def test_a_second_writer_is_refused_until_the_first_closes(make, tmp_path):
    first, second = make(tmp_path / "s"), make(tmp_path / "s")
    first.add(rows("a"))
    with pytest.raises(StoreLockedError, match="this process"):
        second.add(rows("b"))
    assert found(second, "a") == ["p-a"]
    first.close()
    second.add(rows("b"))
    assert found(second, "b") == ["p-b"]
    check_consistent(second)


def test_a_writer_in_another_process_is_named(make, tmp_path, child):
    store = make(tmp_path / "s")
    store.add(rows("a"))
    script = """
import sys
from pathlib import Path
from stub_encoders import TinyTokenizer
from sidr_rag.errors import StoreLockedError
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store
store = Store.open(Path(sys.argv[1]), TinyTokenizer())
try:
    store.add([Row(0, "x", None, "b", "{}")])
except StoreLockedError as e:
    print(e)
else:
    print("added")
"""
    import os

    assert f"process {os.getpid()}" in child(script, tmp_path / "s").stdout
    store.close()
    assert child(script, tmp_path / "s").stdout == "added\n"
    again = make(tmp_path / "s")
    assert found(again, "b") == ["x"]


def test_a_closed_store_says_so_and_holds_no_lock(make, tmp_path):
    store = make(tmp_path / "s")
    store.add(rows("a"))
    store.close()
    store.close()
    for call in (lambda: store.add(rows("b")), lambda: store.delete(["p-a"]), store.current, lambda: store.lookup([])):
        with pytest.raises(SidrError, match="closed"):
            call()
    other = make(tmp_path / "s")
    other.add(rows("b"))
    assert len(contents(other)) == 2


def test_the_next_writer_drops_files_that_no_commit_names(make, tmp_path):
    store = make(tmp_path / "s")
    store.add(rows("a"))
    store.close()
    segments = tmp_path / "s" / "segments"
    (segments / ("0" * 32 + ".seg")).write_bytes(b"interrupted")
    (segments / ("1" * 32 + ".seg.abc.tmp")).write_bytes(b"interrupted")
    reader = make(tmp_path / "s")
    assert found(reader, "a") == ["p-a"]
    assert len(files_of(reader)) == 3  # a reader removes nothing
    reader.add(rows("b"))
    assert len(files_of(reader)) == 2
    check_consistent(reader)


def test_a_replaced_folder_is_not_written_to(make, tmp_path):
    import shutil

    old = make(tmp_path / "s")
    old.add(rows("a", ids=["x"]))
    old.close()
    old = make(tmp_path / "s")
    shutil.rmtree(tmp_path / "s")
    new = make(tmp_path / "s")
    new.add(rows("b", ids=["y"]))
    new.close()
    files = sorted((tmp_path / "s" / "segments").iterdir())
    for call in (lambda: old.add(rows("c")), lambda: old.delete(["x"]), old.compact):
        with pytest.raises(IndexFormatError, match="replaced"):
            call()
    assert sorted((tmp_path / "s" / "segments").iterdir()) == files
    faults = []

    def elsewhere():
        try:
            old.current()
        except SidrError as e:
            faults.append(str(e))

    thread = threading.Thread(target=elsewhere, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert "replaced" in faults[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(make(tmp_path / "s"), "b") == ["y"]


# Damaged segments


def damage_of(kind, path):
    if kind == "missing":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "flipped":
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(bytes(data))
    elif kind == "link":
        target = path.with_name("elsewhere")
        path.rename(target)
        path.symlink_to(target)


@pytest.mark.parametrize("kind", ["missing", "cut", "empty", "flipped", "link", "another segment"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_segment_is_rebuilt_with_a_warning(make, tmp_path, kind, read_only):
    store = make(tmp_path / "s")
    store.add(rows("a a", "a b", "b", "c", ids=["w", "x", "y", "z"]))
    store.add(rows("a c"))
    store.delete(["x"])
    expected = {letter: found(store, letter) for letter in "abc"}
    first, second = (store.folder.segment_file(v.name) for v in store.current().views)
    store.close()
    if kind == "another segment":
        first.write_bytes(second.read_bytes())
    else:
        damage_of(kind, first)
    with pytest.warns(RuntimeWarning, match="rebuilding") as caught:
        store = make(tmp_path / "s", read_only=read_only)
    assert first.name in str(caught[0].message)
    assert {letter: found(store, letter) for letter in "abc"} == expected
    check_consistent(store)
    if read_only:
        return
    store.delete(["nobody"])  # no change: nothing is written
    store.add(rows("d"))  # the next commit puts the rebuilt segment on disk
    assert {letter: found(store, letter) for letter in "abc"} == expected
    store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = make(tmp_path / "s")
        assert {letter: found(store, letter) for letter in "abcd"} == {**expected, "d": ["p-d"]}
        check_consistent(store)


def test_compacting_a_damaged_store_mends_it(make, tmp_path):
    store = make(tmp_path / "s")
    store.add(rows("a"))
    store.add(rows("b"))
    for view in store.current().views:
        store.folder.segment_file(view.name).write_bytes(b"")
    store.close()
    with pytest.warns(RuntimeWarning, match="rebuilding"):
        store = make(tmp_path / "s")
    store.compact()
    store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(make(tmp_path / "s"), "b") == ["p-b"]


def test_a_search_of_an_old_state_does_not_filter_by_a_newer_one(store):
    store.add(rows("a", ids=["x"], metadata='{"n":1}'))
    condition = parse_filter({"n": 1})
    old = store.current()
    store.add(rows("a", ids=["x"], metadata='{"n":2}'))
    assert [view.segment.columns.mask(condition).tolist() for view in old.views] == [[True]]
    masks = [view.segment.columns.mask(condition)[view.live_rows(view.segment.seqs)] for view in store.current().views]
    assert not np.concatenate(masks).any()


# Snapshots


def test_a_snapshot_is_the_store(store, make, tmp_path):
    for i in range(5):
        store.add(rows(f"{LETTERS[i]} a", ids=[str(i)], metadata=json.dumps({"n": i})))
    store.delete(["1"])
    store.add(rows("a z", ids=["2"]))
    write_snapshot(store, tmp_path / "copy")
    copy = make(tmp_path / "copy")
    assert list(copy.scan()) == list(store.scan())
    assert [found(copy, letter) for letter in LETTERS] == [found(store, letter) for letter in LETTERS]
    assert copy.current().next_seq == store.current().next_seq
    assert all(v.live is None for v in copy.current().views)
    check_consistent(copy)
    copy.add(rows("y", ids=["new"]))
    assert found(store, "y") == []


def test_saving_again_replaces_the_earlier_snapshot(store, make, tmp_path):
    store.add(rows("a"))
    write_snapshot(store, tmp_path / "copy")
    reader = make(tmp_path / "copy", read_only=True)
    assert found(reader, "a") == ["p-a"]
    store.add(rows("b"))
    store.delete(["p-a"])
    write_snapshot(store, tmp_path / "copy")
    assert found(reader, "b") == ["p-b"]
    assert found(reader, "a") == []
    assert len(list((tmp_path / "copy" / "segments").iterdir())) == 1
    check_consistent(reader)


def test_a_snapshot_over_another_store_needs_overwrite(store, make, tmp_path):
    other = make(tmp_path / "other")
    other.add(rows("z"))
    other.close()
    store.add(rows("a"))
    with pytest.raises(IndexFormatError, match="another store"):
        write_snapshot(store, tmp_path / "other")
    assert found(make(tmp_path / "other"), "z") == ["p-z"]
    write_snapshot(store, tmp_path / "other", overwrite=True)
    assert contents(make(tmp_path / "other")) == [("p-a", "a")]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "note.txt").write_text("mine", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(IndexFormatError, match="not empty"):
            write_snapshot(store, tmp_path / "files", overwrite=overwrite)


def test_a_snapshot_waits_for_no_writer(store, make, tmp_path):
    store.add(rows("a"))
    write_snapshot(store, tmp_path / "copy")
    other = make(tmp_path / "copy")
    other.add(rows("b"))
    with pytest.raises(StoreLockedError, match="another writer"):
        write_snapshot(store, tmp_path / "copy")
    assert len(contents(other)) == 2


def test_a_failed_snapshot_leaves_the_old_one_or_none(store, make, tmp_path, monkeypatch):
    store.add(rows("a"))
    write_snapshot(store, tmp_path / "copy")
    store.add(rows("b"))
    files = sorted(p.name for p in (tmp_path / "copy" / "segments").iterdir())

    def refuse(*_):
        raise StorageError(28, "No space left on device")

    monkeypatch.setattr(Segment, "save", refuse)
    for target in ("copy", "new"):
        with pytest.raises(StorageError):
            write_snapshot(store, tmp_path / target)
    monkeypatch.undo()
    assert contents(make(tmp_path / "copy", read_only=True)) == [("p-a", "a")]
    assert sorted(p.name for p in (tmp_path / "copy" / "segments").iterdir()) == files
    with pytest.raises(IndexFormatError, match="not a sidr-rag store"):
        Store.open(tmp_path / "new", TinyTokenizer())
    write_snapshot(store, tmp_path / "new")
    assert len(contents(make(tmp_path / "new"))) == 2


def test_an_empty_store_can_be_saved_and_opened(store, make, tmp_path):
    write_snapshot(store, tmp_path / "copy")
    copy = make(tmp_path / "copy")
    assert copy.current().n_live == 0
    assert found(copy, "a") == []
    check_consistent(copy)
