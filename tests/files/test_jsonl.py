from __future__ import annotations

import json

import pytest

from sidr_rag.errors import FileReadError
from sidr_rag.files import Limits
from sidr_rag.files.document import Section


def test_fields(load_file):
    lines = [
        {"_id": "d1", "title": "T", "text": "body", "year": 1999, "tags": ["a"]},
        {"id": 7, "content": "second"},
        {"doc_id": "x", "Passage": "third", "id": None},
    ]
    sections, faults = load_file("a.jsonl", "\n".join(json.dumps(line) for line in lines))
    assert sections == [
        Section("body", "T", {"year": 1999, "tags": ["a"]}, "d1"),
        Section("second", None, {}, "7"),
        Section("third", None, {"doc_id": "x", "id": None}, None),
    ]
    assert faults == []


def test_text_field_of_another_type_is_passed_over(load_file):
    sections, _ = load_file("a.ndjson", '{"text": {"en": 1}, "body": "b"}')
    assert sections == [Section("b", None, {"text": {"en": 1}})]


def test_bad_lines_are_reported_and_the_rest_is_kept(load_file):
    content = (
        b'{"text": "one"}\r\n\r\nnot json\n["a list"]\n{"other": 1}\n{"text": \n"plain"\n{"text": "two", "n": '
        + b"9" * 5000
        + b'}\n{"text": "last"}'
    )
    sections, faults = load_file("a.jsonl", content)
    assert [section.text for section in sections] == ["one", "last"]
    assert [fault.split(":")[0] for fault in faults] == [f"line {n}" for n in (3, 4, 5, 6, 7, 8)]
    assert "one of text, content, body, passage, contents is expected" in faults[2]
    assert not any("not json" in fault or "plain" in fault for fault in faults)


def test_numbers_that_json_lacks_become_null(load_file):
    sections, _ = load_file("a.jsonl", '{"text": "x", "a": NaN, "b": -Infinity, "c": 1e999, "d": 1.5}')
    assert sections[0].metadata == {"a": None, "b": None, "c": None, "d": 1.5}


def test_lone_surrogates_are_kept(load_file):
    sections, faults = load_file("a.jsonl", '{"text": "a \\ud800 b", "k\\udfff": "v"}')
    assert sections[0].text == "a \ud800 b"
    assert faults == []


def test_nesting(load_file):
    deep = '{"text": "x", "a": ' + "[" * 200_000 + "]" * 200_000 + "}"
    fair = '{"text": "y", "a": ' + "[" * 150 + "]" * 150 + "}"
    flat = json.dumps({"text": "z", "a": [[i] for i in range(300)]})
    sections, faults = load_file("a.jsonl", "\n".join([deep, fair, flat]))
    assert [section.text for section in sections] == ["z"]
    assert faults[0] == "line 1: not usable JSON (RecursionError)"
    assert faults[1] == "line 2: nested more than 100 deep"


def test_long_line_is_left_out(load_file):
    content = '{"text": "a"}\n{"text": "' + "b" * 500 + '"}\n{"text": "c"}\n'
    sections, faults = load_file("a.jsonl", content, Limits(max_record_chars=100))
    assert [section.text for section in sections] == ["a", "c"]
    assert faults == ["line 2: longer than max_record_chars=100"]


def test_title_without_text_is_the_text(load_file):
    sections, faults = load_file("a.jsonl", '{"id": "1", "title": "Only this", "text": ""}\n{"text": null}\n')
    assert sections == [Section("Only this", None, {}, "1"), Section("", None, {}, None)]
    assert faults == []


@pytest.mark.parametrize("own_id", ['""', '" "', "true", "1.5", "[1]", '"' + "i" * 600 + '"'])
def test_unusable_ids_stay_metadata(load_file, own_id):
    sections, _ = load_file("a.jsonl", f'{{"text": "x", "id": {own_id}}}')
    assert sections[0].id is None
    assert sections[0].metadata == {"id": json.loads(own_id)}


def test_utf16_and_binary(load_file):
    sections, _ = load_file("a.jsonl", '{"text": "ü"}\n{"text": "漢"}'.encode("utf-16"))
    assert [section.text for section in sections] == ["ü", "漢"]
    with pytest.raises(FileReadError, match="not a text file"):
        load_file("b.jsonl", bytes(100))


def test_empty(load_file):
    assert load_file("a.jsonl", "") == ([], [])
