"""A folder made to harm: it is refused with a named file, or answers rightly; nothing else ever happens."""

import json
import os
import shutil
import sqlite3
import warnings

import numpy as np
import pytest

from sidr_rag.errors import IndexFormatError, SidrError, StorageError
from sidr_rag.index.arrays import read_arrays, write_arrays
from sidr_rag.index.segment import Segment


@pytest.fixture(scope="module")
def base(parts, tmp_path_factory):
    from benchmarks.reliability.faults import prepare

    folder = tmp_path_factory.mktemp("hostile") / "base"
    return folder, prepare(parts, folder)


@pytest.fixture
def store(base, tmp_path):
    shutil.copytree(base[0], tmp_path / "store")
    return tmp_path / "store"


def right(parts, folder, model, *, warns=None):
    from benchmarks.reliability.model import passages_differ, searches_differ
    from benchmarks.reliability.script import ASKS

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with parts.open(folder, read_only=True) as sidr:
            assert passages_differ(sidr, model) is None
            assert searches_differ(sidr, model, ASKS, parts) is None
    if warns is not None:
        assert bool(told) is warns
        assert all("amber" not in str(w.message) for w in told)


def a_segment(folder):
    return max(folder.glob("segments/*.seg"), key=lambda path: path.stat().st_size)


def crafted(path, head, body=b"", size=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + body)


ENTRY = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
HEADS = {
    "no json": b"{",
    "no object": b"[]",
    "a number": b"7",
    "not text": b"\xff\xfe{}",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "a digit too many": b'{"a": ' + b"9" * 10_000 + b"}",
    "metadata of another type": {"__metadata__": [1]},
    "metadata null": {"__metadata__": None},
    "entry of another type": {"a": [1, 2]},
    "entry null": {"a": None},
    "unknown dtype": {"a": {**ENTRY, "dtype": "O"}},
    "dtype of another type": {"a": {**ENTRY, "dtype": ["U8"]}},
    "no shape": {"a": {"dtype": "U8", "data_offsets": [0, 4]}},
    "shape of another type": {"a": {**ENTRY, "shape": 4}},
    "huge shape": {"a": {**ENTRY, "shape": [1 << 62]}},
    "huge shape and offsets": {"a": {**ENTRY, "shape": [1 << 62], "data_offsets": [0, 1 << 62]}},
    "shape that overflows": {"a": {"dtype": "U64", "shape": [1 << 61], "data_offsets": [0, 0]}},
    "negative shape": {"a": {**ENTRY, "shape": [-4]}},
    "two axes": {"a": {**ENTRY, "shape": [2, 2]}},
    "shape of floats": {"a": {**ENTRY, "shape": [4.0]}},
    "shape true": {"a": {**ENTRY, "shape": [True], "data_offsets": [0, 1]}},
    "offsets beyond the end": {"a": {**ENTRY, "data_offsets": [4096, 4100]}},
    "negative offsets": {"a": {**ENTRY, "data_offsets": [-4, 0]}},
    "offsets backwards": {"a": {**ENTRY, "data_offsets": [4, 0]}},
    "one offset": {"a": {**ENTRY, "data_offsets": [0]}},
    "no checksum": {"a": ENTRY},
    "no arrays": {"__metadata__": {"format": "sidr-segment-1", "dim": "29523", "levels": "1,2,4"}},
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_headers(parts, store, base, head):
    path = a_segment(store)
    crafted(path, head, bytes(64))
    with pytest.raises(IndexFormatError, match=path.name):
        Segment.open(path)
    right(parts, store, base[1], warns=True)


@pytest.mark.parametrize("size", [1 << 63, (1 << 64) - 1, 1 << 31, 1 << 20, 65], ids=str)
def test_header_sizes(store, size):
    path = a_segment(store)
    crafted(path, b"{}", bytes(60), size=size)
    with pytest.raises(IndexFormatError, match=path.name):
        Segment.open(path)


def _deep(name):
    return {name: np.frombuffer(b"[" * 200_000, dtype=np.uint8)}


ARRAYS = {
    "seqs backwards": lambda a: {"seqs": a["seqs"][::-1].copy()},
    "seqs equal": lambda a: {"seqs": np.zeros_like(a["seqs"])},
    "seqs signed": lambda a: {"seqs": a["seqs"].astype(np.int64)},
    "seqs of halves": lambda a: {"seqs": a["seqs"].astype(np.float32)},
    "too few lengths": lambda a: {"lengths": a["lengths"][1:]},
    "lengths of halves": lambda a: {"lengths": a["lengths"].astype(np.float32)},
    "negative list lengths": lambda a: {"doc_lens": -a["doc_lens"].astype(np.int64)},
    "list lengths of the same sum": lambda a: {
        "doc_lens": np.concatenate(
            ([-(10**6), 10**6 + int(a["doc_lens"][:2].sum())], a["doc_lens"][2:].astype(np.int64))
        )
    },
    "huge list lengths": lambda a: {"list_lens": np.full(len(a["list_lens"]), 2**63, dtype=np.uint64)},
    "list lengths that wrap around": lambda a: {"list_lens": np.full(len(a["list_lens"]), 2**32 - 1, np.uint32)},
    "dims out of range": lambda a: {"doc_dims": np.full_like(a["doc_dims"], 65_535)},
    "dims negative": lambda a: {"doc_dims": np.full(len(a["doc_dims"]), -1, dtype=np.int32)},
    "terms out of range": lambda a: {"list_keys": np.arange(65_536 - len(a["list_keys"]), 65_536, dtype=np.uint16)},
    "terms backwards": lambda a: {"list_keys": a["list_keys"][::-1].copy()},
    "rows out of range": lambda a: {"rows": np.full_like(a["rows"], 65_535)},
    "rows negative": lambda a: {"rows": np.full(len(a["rows"]), -1, dtype=np.int32)},
    "rows as numbers with a point": lambda a: {"rows": a["rows"].astype(np.float32)},
    "no rows": lambda a: {name: array[:0] for name, array in a.items()},
    "codes out of range": lambda a: {"meta.0.codes": np.full_like(a["meta.0.codes"], 255)},
    "codes too few": lambda a: {"meta.0.codes": a["meta.0.codes"][1:]},
    "codes with a point": lambda a: {"meta.0.codes": a["meta.0.codes"].astype(np.float32)},
    "infinitely many values": lambda a: {"meta.0.n_values": np.array([np.inf], np.float32)},
    "keys no json": lambda a: {"meta.keys": np.frombuffer(b"[", np.uint8)},
    "keys of another type": lambda a: {"meta.keys": np.frombuffer(b"[1]", np.uint8)},
    "keys deep": lambda a: _deep("meta.keys"),
    "one key too many": lambda a: {"meta.keys": np.frombuffer(b'["group","x"]', np.uint8)},
}


def _rewritten(path, change, meta_change=None):
    arrays, meta = read_arrays(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    arrays.update(change(arrays))
    meta = {key: value for key, value in meta.items() if not key.startswith("crc32.")}
    write_arrays(path, arrays, {**meta, **(meta_change or {})})


@pytest.mark.parametrize("change", ARRAYS.values(), ids=ARRAYS)
def test_contents_with_right_checksums(parts, store, base, change):
    path = a_segment(store)
    _rewritten(path, change)
    right(parts, store, base[1], warns=True)


VALUES = {"no json": b"[", "deep": b"[" * 200_000, "too few": b"[]", "no list": b"{}", "no text": b"\xff\xff"}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_metadata_values(parts, store, values):
    path = a_segment(store)
    _rewritten(path, lambda a: {"meta.0.values": np.frombuffer(values, np.uint8)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(IndexFormatError), parts.open(store, read_only=True) as sidr:
            sidr.search("amber", filter={"group": {"gt": 1}}, first_stage="lexical")


@pytest.mark.parametrize(
    "meta",
    [
        {"dim": "1"},
        {"dim": "-5"},
        {"dim": "1" + "0" * 30},
        {"dim": "9" * 6000},
        {"dim": "x"},
        {"levels": "1"},
        {"levels": ""},
        {"levels": "1,1,1"},
        {"levels": "4,2,1"},
        {"levels": "1,2,4,8"},
        {"format": "sidr-segment-1"},
    ],
    ids=lambda meta: json.dumps(meta)[:30],
)
def test_facts_with_right_checksums(parts, store, base, meta):
    _rewritten(a_segment(store), lambda a: {}, meta)
    right(parts, store, base[1], warns=True)


# The database

BY_SQL = {
    "traversal": "UPDATE segments SET name = '../../../../etc/passwd' WHERE position = 0",
    "an absolute name": "UPDATE segments SET name = '/etc/passwd' WHERE position = 0",
    "an empty name": "UPDATE segments SET name = '' WHERE position = 0",
    "a name of another type": "UPDATE segments SET name = x'00ff' WHERE position = 0",
    "rows as text": "UPDATE segments SET n_rows = 'many' WHERE position = 0",
    "a negative seq": "UPDATE segments SET first_seq = -5 WHERE position = 0",
    "seqs backwards": "UPDATE segments SET first_seq = last_seq + 1 WHERE position = 0",
    "overlapping segments": "UPDATE segments SET last_seq = last_seq + 40 WHERE position = 0",
    "segments out of order": "UPDATE segments SET position = 1000 - position",
    "negative tombstones": "INSERT INTO tombstones VALUES (-1)",
    "no generation": "DELETE FROM meta WHERE key = 'generation'",
    "generation as text": "UPDATE meta SET value = 'x' WHERE key = 'generation'",
    "a blob as settings": "UPDATE meta SET value = x'c3' WHERE key = 'settings'",
    "settings gone": "DELETE FROM meta WHERE key = 'settings'",
    "settings of another type": "UPDATE meta SET value = '[]' WHERE key = 'settings'",
    "settings with huge dim": "UPDATE meta SET value = json_set(value, '$.dim', 1e300) WHERE key = 'settings'",
    "settings with another dim": "UPDATE meta SET value = json_set(value, '$.dim', 7) WHERE key = 'settings'",
    "settings with no levels": "UPDATE meta SET value = json_set(value, '$.thresholds', '') WHERE key = 'settings'",
    "another tokenizer": "UPDATE meta SET value = json_set(value, '$.fingerprint', 'x') WHERE key = 'settings'",
    "another application": "PRAGMA application_id = 7",
    "no passages": "DROP TABLE passages",
    "no segments": "DROP TABLE segments",
    "text that is none": "UPDATE passages SET text = x'ff' WHERE seq = 3",
    "text of another type": "UPDATE passages SET text = 7 WHERE seq = 3",
    "metadata that are none": "UPDATE passages SET metadata = x'5b5d' WHERE seq = 3",
    "metadata deep": "UPDATE passages SET metadata = CAST(printf('%.*c', 200000, '[') AS BLOB) WHERE seq = 3",
    "an id that is none": "UPDATE passages SET id = x'ff' WHERE seq = 3",
}


@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "writing"])
@pytest.mark.parametrize("sql", BY_SQL.values(), ids=BY_SQL)
def test_database_contents(parts, store, sql, read_only):
    from benchmarks.reliability.model import contents

    connection = sqlite3.connect(store / "passages.db", isolation_level=None)
    connection.execute(sql)
    connection.close()

    def use():
        with parts.open(store, read_only=read_only) as sidr:
            contents(sidr)
            sidr.search("amber", k=1000, filter={"group": {"gte": 0}}, first_stage="lexical")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises((IndexFormatError, StorageError)):
            use()


HARMLESS = {
    "tombstones of nothing": "INSERT INTO tombstones VALUES (9223372036854775807)",
    "a model in the settings": "UPDATE meta SET value = json_set(value, '$.options.model', 'evil/model', "
    "'$.options.trust_remote_code', json('true')) WHERE key = 'settings'",
    "unknown settings": "INSERT INTO meta VALUES ('plugin', 'os.system')",
    "another table": "CREATE TABLE extra (x); INSERT INTO extra VALUES (1)",
}


@pytest.mark.parametrize("n_rows", [0, -1, 9223372036854775807])
def test_wrong_row_counts_are_mended(parts, store, base, n_rows):
    connection = sqlite3.connect(store / "passages.db", isolation_level=None)
    connection.execute("UPDATE segments SET n_rows = ? WHERE position = 0", (n_rows,))
    connection.close()
    right(parts, store, base[1], warns=True)


@pytest.mark.parametrize("sql", HARMLESS.values(), ids=HARMLESS)
def test_what_a_database_may_hold_and_is_ignored(parts, store, base, sql):
    connection = sqlite3.connect(store / "passages.db", isolation_level=None)
    connection.executescript(sql)
    connection.close()
    right(parts, store, base[1], warns=False)


# The folder

MARKERS = {
    "empty": b"",
    "no json": b"{",
    "a list": b"[]",
    "deep": b"[" * 60_000,
    "no uuid": b'{"format": 1}',
    "a later format": b'{"format": 2, "uuid": "x"}',
    "format of another type": b'{"format": [1], "uuid": "x"}',
    "format true": b'{"format": true, "uuid": "x"}',
    "not text": b"\xff\xfe\x00",
    "endless": b'{"format": 1, "uuid": "' + b"x" * 100_000 + b'"}',
}


@pytest.mark.parametrize("marker", MARKERS.values(), ids=MARKERS)
def test_markers(parts, store, marker):
    (store / "sidr.json").write_bytes(marker)
    with pytest.raises(IndexFormatError, match=r"sidr\.json"):
        parts.open(store)


@pytest.mark.parametrize("name", ["sidr.json", "passages.db", "segments", "embeddings.db", "lock"])
@pytest.mark.parametrize("what", ["link", "folder", "pipe", "file"])
def test_parts_of_another_kind(parts, store, tmp_path, name, what):
    """Opened, written or refused: but within a moment, and with this library's errors."""
    from benchmarks.reliability.parts import in_child

    path = store / name
    aside = tmp_path / "aside"
    if path.exists():
        path.rename(aside)
    else:
        aside.write_bytes(b"")
    if what == "link":
        path.symlink_to(aside)
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"nothing of ours")

    def use():
        import signal

        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)  # a pipe that is waited for would hang for ever
        warnings.simplefilter("ignore")
        try:
            with parts.open(store) as sidr:
                sidr.add(["amber"])
                sidr.compact(purge=True)
        except SidrError as e:
            return f"refused: {type(e).__name__}"
        return "written"

    outcome = in_child(use)
    if what == "link" or name in ("sidr.json", "passages.db"):
        assert outcome == "refused: IndexFormatError"


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("name", ["passages.db", "embeddings.db"])
def test_journals_of_another_kind(parts, store, tmp_path, name, end, what):
    """Refused before SQLite opens them: it would follow a link, and wait at a pipe for ever."""
    path = store / f"{name}{end}"
    if what == "link":
        (tmp_path / "aside").write_bytes(b"")
        path.symlink_to(tmp_path / "aside")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(IndexFormatError, match=path.name):
        parts.open(store)


def test_a_link_among_the_segments_is_not_followed(parts, store, base, tmp_path):
    path = a_segment(store)
    path.rename(tmp_path / "outside")
    before = (tmp_path / "outside").read_bytes()
    path.symlink_to(tmp_path / "outside")
    right(parts, store, base[1], warns=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with parts.open(store) as sidr:
            sidr.add(["one more"])
            sidr.compact(purge=True)
    assert (tmp_path / "outside").read_bytes() == before


def test_foreign_files_among_the_segments(parts, store, base):
    """A folder put there by someone else does not keep the store from being written."""
    (store / "segments" / "mine").mkdir()
    (store / "segments" / "mine" / "note.txt").write_text("keep")
    (store / "segments" / "notes.txt").write_text("?")
    with parts.open(store) as sidr:
        sidr.add(["amber"], ids=["fresh"])
        assert "fresh" in sidr
    assert (store / "segments" / "mine" / "note.txt").read_text() == "keep"


def test_no_model_is_loaded_by_a_store(store, monkeypatch):
    """`open` takes the model from the caller alone."""
    from sidr_rag import SiDR
    from sidr_rag import options as engine_options

    asked = []
    load = engine_options.load_encoder
    monkeypatch.setattr(
        engine_options, "load_encoder", lambda model, **rest: asked.append(model) or load(model, **rest)
    )
    connection = sqlite3.connect(store / "passages.db", isolation_level=None)
    connection.execute(
        "UPDATE meta SET value = json_set(value, '$.model', 'evil/one', '$.options.model', 'evil/two') "
        "WHERE key = 'settings'"
    )
    connection.close()
    with SiDR.open(store, read_only=True, num_threads=1, kernel="numpy") as sidr:
        assert len(sidr) > 0
    assert asked == ["default"]
