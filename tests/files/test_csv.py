from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.files import Limits
from sidr_rag.files.csv_rows import rows
from sidr_rag.files.document import Section


def parsed(text: str, max_chars: int = 10_000, delimiter: str = ","):
    return list(rows(io.StringIO(text, newline=""), delimiter, max_chars))


cells = st.lists(st.lists(st.text(alphabet='ab ,"\n\r;é', max_size=6), min_size=1, max_size=4), max_size=5)


@settings(max_examples=300, deadline=None)
@given(cells, st.sampled_from(["\r\n", "\n"]))
def test_written_rows_come_back(table, newline):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows(table)
    expected = [row for row in table if row != [""]]
    assert [fields for _, fields in parsed(out.getvalue())] == expected


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet='a,"\n', max_size=30))
def test_any_text_is_read_as_the_standard_library_reads_it(text):
    expected = list(csv.reader(io.StringIO(text, newline="")))
    got = parsed(text)
    if got and isinstance(got[-1][1], str):
        assert got.pop()[1] == "a quoted field is never closed"
        expected.pop()
    assert [fields for _, fields in got] == [row for row in expected if row not in ([], [""])]


def test_numbers_are_those_of_first_lines():
    assert parsed('a,b\n"x\ny",2\n\nc,d\n') == [(1, ["a", "b"]), (2, ["x\ny", "2"]), (5, ["c", "d"])]


def test_long_rows_are_left_out_and_the_rest_is_kept():
    text = "a,b\n" + "x" * 200 + ',1\n"' + "y\n" * 100 + '",2\nc,d\n'
    assert parsed(text, 100) == [
        (1, ["a", "b"]),
        (2, "longer than max_record_chars=100"),
        (3, "longer than max_record_chars=100"),
        (104, ["c", "d"]),
    ]


def test_field_beyond_the_standard_librarys_limit_and_nul():
    before = csv.field_size_limit()
    assert parsed('"' + "x" * 300_000 + '\0",2\n', 1_000_000) == [(1, ["x" * 300_000 + "\0", "2"])]
    assert csv.field_size_limit() == before


def test_text_column(load_file):
    sections, faults = load_file("a.csv", 'ID,Title,Text,year\r\n1,T,"a ""b"", c",1999\r\n2,,second,\r\n')
    assert sections == [Section('a "b", c', "T", {"year": "1999"}, "1"), Section("second", None, {}, "2")]
    assert faults == []


def test_without_text_column_all_columns_are_joined(load_file):
    sections, _ = load_file("a.csv", "name,city\nAda,London\nBob,\n")
    assert sections == [
        Section("name: Ada\ncity: London", None, {"name": "Ada", "city": "London"}),
        Section("name: Bob", None, {"name": "Bob"}),
    ]


def test_odd_headers_and_rows(load_file):
    sections, _ = load_file("a.csv", "text,,x,x\na,b,c,d,e\nf\n")
    assert sections == [Section("a", None, {"column 2": "b", "x": "c", "x_2": "d", "column 5": "e"}), Section("f")]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t"), ("a.csv", "|")])
def test_delimiters(load_file, name, mark):
    sections, _ = load_file(name, f"id{mark}text\n1{mark}one, two\n")
    assert sections == [Section("one, two", None, {}, "1")]


def test_spreadsheet_encodings(load_file):
    text = "id;text\n1;Frühstück mit Käse\n"
    for data in (text.encode("utf-8-sig"), text.encode("utf-16"), text.encode("cp1252")):
        sections, _ = load_file("a.csv", data)
        assert sections == [Section("Frühstück mit Käse", None, {}, "1")]


def test_faults_name_the_line(load_file):
    sections, faults = load_file("a.csv", 'text\ngood\n"' + "x" * 90 + '"\nfine\n"open', Limits(max_record_chars=50))
    assert [section.text for section in sections] == ["good", "fine"]
    assert faults == ["line 3: longer than max_record_chars=50", "line 5: a quoted field is never closed"]


def test_unusable_header_ends_the_file(load_file):
    sections, faults = load_file("a.csv", "x" * 90 + "\na\n", Limits(max_record_chars=50))
    assert (sections, len(faults)) == ([], 1)


def test_empty_and_header_only(load_file):
    assert load_file("a.csv", "") == ([], [])
    assert load_file("b.csv", "a,b\n") == ([], [])
