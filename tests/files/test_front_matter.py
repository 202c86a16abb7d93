from __future__ import annotations

from sidr_rag.files.front_matter import parse


def parsed(text: str):
    return parse(text.split("\n"))


def test_scalars_and_lists():
    settings, n = parsed(
        "---\ntitle: \"On: colons\"\nyear: 2024\nshare: 0.5\ndraft: false\nnothing:\ntags: [a, 'b c', 3]\n"
        "authors:\n  - Ada\n  - Bob # the second\ndate: 2024-05-01\n---\nbody"
    )
    assert settings == {
        "title": "On: colons",
        "year": 2024,
        "share": 0.5,
        "draft": False,
        "tags": ["a", "b c", 3],
        "authors": ["Ada", "Bob"],
        "date": "2024-05-01",
    }
    assert n == 12


def test_absent_or_unclosed():
    assert parsed("# heading\n---\n") == ({}, 0)
    assert parsed("---\nkey: value\n# no end") == ({}, 0)
    assert parsed("---\n" + "x\n" * 2000 + "---") == ({}, 0)
    assert parse([]) == ({}, 0)


def test_nested_values_are_passed_over():
    settings, n = parsed("---\nouter:\n  inner: 1\nlast: yes\n---")
    assert settings == {"last": "yes"}
    assert n == 5


def test_leading_zeros_and_long_numbers_stay_text():
    settings, _ = parsed("---\nzip: 01234\nlong: 12345678901234567890123\n---")
    assert settings == {"zip": "01234", "long": "12345678901234567890123"}
