import json
import sqlite3
import stat

import pytest
from stub_encoders import TinyTokenizer, stub_settings

from sidr_rag.errors import IndexFormatError, StorageError
from sidr_rag.index.folder import Folder, StoreSettings
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store


def add(store, *texts, ids=None):
    names = ids or [f"p{i}" for i in range(len(texts))]
    return store.add(Row(0, i, None, t, "{}") for i, t in zip(names, texts, strict=True))


@pytest.fixture
def store_path(tmp_path, tiny):
    path = tmp_path / "store"
    store = Store.create(path, stub_settings(tiny), tiny)
    add(store, "a b", "b c")
    store.close()
    return path


def test_everything_in_a_store_is_private(store_path):
    for file in [store_path, *store_path.rglob("*")]:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file.name
    names = {p.name for p in store_path.iterdir()}
    assert {"sidr.json", "passages.db", "segments", "lock"} <= names


def test_nothing_in_a_store_is_a_pickle(store_path):
    for file in store_path.rglob("*"):
        assert file.suffix not in (".pkl", ".pickle", ".npy", ".pt")
        if file.is_file():
            assert not file.read_bytes().startswith(b"\x80")


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "other files"])
def test_a_folder_that_is_no_store_is_refused_and_left_alone(tmp_path, tiny, kind):
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("hello", encoding="utf-8")
    elif kind != "missing":
        path.mkdir()
    if kind == "other files":
        (path / "notes.txt").write_text("hello", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(IndexFormatError, match="x"):
        Store.open(path, tiny)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_is_not_made_among_other_files(tmp_path, tiny):
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(IndexFormatError, match="not empty"):
        Store.create(tmp_path, stub_settings(tiny), tiny)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_store_cannot_be_made_where_a_file_is(tmp_path, tiny):
    (tmp_path / "x").write_text("hello", encoding="utf-8")
    with pytest.raises(StorageError):
        Store.create(tmp_path / "x", stub_settings(tiny), tiny)


def test_an_interrupted_creation_can_be_repeated(tmp_path, tiny):
    path = tmp_path / "store"
    Store.create(path, stub_settings(tiny), tiny).close()
    (path / "sidr.json").rename(path / "sidr.json.tmp")
    (path / "passages.db.new-journal").write_bytes(b"x")
    with pytest.raises(IndexFormatError):
        Store.open(path, tiny)
    store = Store.create(path, stub_settings(tiny), tiny)
    add(store, "a")
    assert store.current().n_live == 1
    store.close()


@pytest.mark.parametrize("version", [999, 0, "1", None, [1]])
def test_another_format_is_refused_with_both_numbers(store_path, tiny, version):
    marker = store_path / "sidr.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text("utf-8")), "format": version}), encoding="utf-8")
    with pytest.raises(IndexFormatError) as caught:
        Store.open(store_path, tiny)
    assert str(version) in str(caught.value)
    assert "supports 1" in str(caught.value)


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b"null", b'{"format": 1}', b"\xff\xfe", b"[" * 70_000])
def test_a_damaged_marker_is_refused_by_name(store_path, tiny, contents):
    (store_path / "sidr.json").write_bytes(contents)
    with pytest.raises(IndexFormatError, match=r"sidr\.json"):
        Store.open(store_path, tiny)


def test_another_tokenizer_is_refused_with_both_fingerprints(store_path):
    with pytest.raises(IndexFormatError) as caught:
        Store.open(store_path, TinyTokenizer(fingerprint="tiny-2"))
    assert "tiny-1" in str(caught.value)
    assert "tiny-2" in str(caught.value)


def test_a_missing_database_is_refused_by_name(store_path, tiny):
    (store_path / "passages.db").unlink()
    with pytest.raises(IndexFormatError, match=r"passages\.db"):
        Store.open(store_path, tiny)


@pytest.mark.parametrize(
    "name",
    ["sidr.json", "passages.db", "segments", "embeddings.db", "lock", "passages.db-wal", "passages.db-shm"],
)
def test_no_link_in_a_store_is_followed(tmp_path, store_path, tiny, name):
    outside = tmp_path / "outside"
    if (store_path / name).exists():
        (store_path / name).rename(outside)
    else:
        outside.write_bytes(b"precious")
    (store_path / name).symlink_to(outside)
    with pytest.raises(IndexFormatError, match="symbolic link"):
        Store.open(store_path, tiny)
    if outside.is_file():
        assert outside.stat().st_size >= 8 or name == "lock"


def edit(path, **values):
    with sqlite3.connect(path / "passages.db") as c:
        (text,) = c.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
        settings = {**json.loads(text), **values}
        settings = {k: v for k, v in settings.items() if v is not None}
        c.execute("UPDATE meta SET value = ? WHERE key = 'settings'", (json.dumps(settings),))
    c.close()


@pytest.mark.parametrize(
    "values",
    [
        {"dim": None},
        {"dim": "x"},
        {"dim": 10**12},
        {"dim": float("inf")},
        {"dim": 25},
        {"thresholds": 5},
        {"thresholds": []},
        {"thresholds": [2, 4]},
        {"thresholds": [1, 4, 2]},
        {"thresholds": [1, 1]},
        {"thresholds": ["a"]},
        {"fingerprint": None},
        {"options": [1]},
    ],
)
def test_settings_without_sense_are_refused_by_name(store_path, tiny, values):
    edit(store_path, **values)
    with pytest.raises(IndexFormatError, match=r"passages\.db"):
        Store.open(store_path, tiny)


def test_unknown_settings_are_kept_and_ignored(store_path, tiny):
    edit(store_path, invented={"later": 1}, options={"also": "new"})
    store = Store.open(store_path, tiny)
    assert store.current().n_live == 2
    assert store.settings.options == {"also": "new"}
    store.close()


def test_settings_survive_json(tiny):
    settings = stub_settings(tiny, weighting="binary")
    text = settings.to_json()
    assert StoreSettings.from_json(text, Folder.__new__(Folder)) == settings


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 31, "A" * 32, "", "a" * 32 + "/", "a" * 33])
def test_a_segment_name_leads_nowhere_else(tmp_path, name):
    with pytest.raises(IndexFormatError, match="segment name"):
        Folder(tmp_path).segment_file(name)
