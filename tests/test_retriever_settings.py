"""A retriever's settings beside its store: written whole, read with distrust."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidr_rag import IndexFormatError, InvalidInputError, SiDR, StorageError
from sidr_rag.retriever_settings import FILE, filter_json, load_settings, save_settings, save_with_settings
from sidr_rag.search.filters import parse_filter

FILTERS = [
    {"owner": "amber"},
    {"page": {"gt": 3, "lte": 9}},
    {},
    {"a": 1, "b": [1, (2, 3)]},
    {("a", "b"): 3},
    {("a", "b"): {"gt": 3, "lt": 9}, "c": "x"},
    {"path": ("a", "b"), "in": {1, 2}},
    {"path": {"eq": ["a", "b"]}},
    {"and": [{"a": 1}, {"or": ({("b",): {"nin": frozenset(["x", "y"])}}, {"not": {"c": {"exists": True}}})}]},
    {"a": {"eq": {"b": {"c": (1,)}}}},
    {("and",): 3},
]


@pytest.mark.parametrize("filter", FILTERS, ids=range(len(FILTERS)))
def test_a_filter_in_json_means_the_same(filter):
    back = json.loads(json.dumps(filter_json(filter)))
    assert parse_filter(back).key == parse_filter(filter).key


@given(
    st.recursive(
        st.dictionaries(st.sampled_from(["a", "b", "path"]), st.integers() | st.text(max_size=3), max_size=2),
        lambda part: (
            st.builds(lambda parts: {"or": parts}, st.lists(part, max_size=2)) | st.builds(lambda p: {"not": p}, part)
        ),
        max_leaves=5,
    )
)
def test_any_filter_in_json_means_the_same(filter):
    assert parse_filter(json.loads(json.dumps(filter_json(filter)))).key == parse_filter(filter).key


def test_what_is_saved_is_loaded(tmp_path):
    assert load_settings(tmp_path) == {}
    save_settings(tmp_path, {"k": 7, "filter": {("a", "b"): {"in": {1}}}, "min_score": None, "score_key": "é\ud800"})
    assert load_settings(tmp_path) == {
        "k": 7,
        "filter": {"path": ["a", "b"], "in": [1]},
        "min_score": None,
        "score_key": "é\ud800",
    }
    save_settings(tmp_path, {"k": 8})
    assert load_settings(tmp_path) == {"k": 8}
    assert [p.name for p in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_what_json_cannot_hold_is_named_and_nothing_is_written(tmp_path, value):
    save_settings(tmp_path, {"k": 7})
    with pytest.raises(InvalidInputError, match=f"reranker of type {type(value).__name__}"):
        save_settings(tmp_path, {"k": 8, "reranker": value})
    assert load_settings(tmp_path) == {"k": 7}


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", "[" * 100_000, '{"k": 1}' + " " * 1_000_001])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with pytest.raises(IndexFormatError, match=FILE):
        load_settings(tmp_path)


@pytest.mark.timeout(60)
def test_links_pipes_and_folders_are_not_read(tmp_path):
    path = tmp_path / FILE
    (tmp_path / "other").write_text("{}", encoding="utf-8")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(StorageError, match=FILE):
        load_settings(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(IndexFormatError, match=FILE):
        load_settings(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(IndexFormatError, match=FILE):
        load_settings(tmp_path)


def test_a_failed_write_keeps_the_old_settings(tmp_path, monkeypatch):
    save_settings(tmp_path, {"k": 7})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=FILE):
        save_settings(tmp_path, {"k": 8})
    assert load_settings(tmp_path) == {"k": 7}
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_a_copy_gets_the_settings_and_a_read_only_store_does_not(tmp_path):
    with SiDR.from_texts(["copper"], path=tmp_path / "s") as sidr:
        save_with_settings(sidr, tmp_path / "s", {"k": 7})
        assert load_settings(tmp_path / "s") == {"k": 7}
        with pytest.raises(InvalidInputError, match="reranker"):
            save_with_settings(sidr, tmp_path / "copy", {"reranker": object()})
        assert not (tmp_path / "copy").exists()
    with SiDR.open(tmp_path / "s", read_only=True) as sidr:
        save_with_settings(sidr, tmp_path / "s", {"k": 8})
        save_with_settings(sidr, tmp_path / "copy", {"k": 9})
    assert load_settings(tmp_path / "s") == {"k": 7}
    assert load_settings(tmp_path / "copy") == {"k": 9}
    with SiDR.open(tmp_path / "copy") as sidr:
        assert len(sidr) == 1
