from __future__ import annotations

from sidr_rag.files.document import MAX_TITLE_CHARS, Section, fit_metadata, rename_reserved
from sidr_rag.files.records import find_field, record_section


def test_find_field_prefers_the_order_of_wanted_and_ignores_case():
    assert find_field(["Body", " TEXT "], ("text", "body")) == " TEXT "
    assert find_field(["text", "Text"], ("text",)) == "text"
    assert find_field([], ("text",)) is None


def test_record_is_not_changed():
    record = {"id": "1", "title": "T", "text": "x", "n": 1}
    assert record_section(record, "text") == Section("x", "T", {"n": 1}, "1")
    assert record == {"id": "1", "title": "T", "text": "x", "n": 1}


def test_overlong_title_goes_to_the_text():
    title = "t" * (MAX_TITLE_CHARS + 1)
    assert record_section({"title": title, "text": "x"}, "text") == Section(f"{title}\nx", None, {})


def test_fit_metadata_keeps_what_fits_in_order():
    assert fit_metadata({"a": "12345", "b": "x" * 100, "c": [1, 2]}, 20) == ({"a": "12345", "c": [1, 2]}, 1)
    assert fit_metadata({}, 1) == ({}, 0)


def test_rename_reserved():
    assert rename_reserved({"source": 1, "x": 2}, ["source", "kind"]) == {"field_source": 1, "x": 2}
