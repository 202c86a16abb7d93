from __future__ import annotations

import pytest


def summary(loaded):
    return [(section.title, section.text) for section in loaded[0]]


def test_headings_become_titles(load_file):
    loaded = load_file("a.md", "# Guide\nhello\n\n## Install ##\nrun it\n### Linux\nuse apt\n## Use\nlike so\n")
    assert summary(loaded) == [
        ("Guide", "hello"),
        ("Guide > Install", "run it"),
        ("Guide > Install > Linux", "use apt"),
        ("Guide > Use", "like so"),
    ]
    assert loaded[0][2].metadata == {"section": "Guide > Install > Linux"}


def test_code_fences_are_kept_and_their_comments_are_no_headings(load_file):
    text = "# A\n```python\n# not a heading\nx = 1\n````\n~~~\n```\n# nor this\n~~~\n# B\nb"
    assert summary(load_file("a.md", text)) == [
        ("A", "```python\n# not a heading\nx = 1\n````\n~~~\n```\n# nor this\n~~~"),
        ("B", "b"),
    ]


def test_unclosed_fence_runs_to_the_end(load_file):
    assert summary(load_file("a.md", "# A\n```\n# x\ny")) == [("A", "```\n# x\ny")]


def test_inline_code_opens_no_fence(load_file):
    assert summary(load_file("a.md", "```inline``` code\n# B\nb")) == [(None, "```inline``` code"), ("B", "b")]


def test_underlined_headings(load_file):
    text = "Top\n===\na\n\nSub\n---\nb\n\n- list\n---\n\nnot\none line\n---\n"
    assert summary(load_file("a.md", text)) == [("Top", "a"), ("Top > Sub", "b\n\n- list\n---\n\nnot\none line\n---")]


@pytest.mark.parametrize("line", ["#hashtag", "    # code", "####### seven", "\t# code", "text # mark"])
def test_no_heading(load_file, line):
    assert summary(load_file("a.md", f"{line}\nrest")) == [(None, f"{line}\nrest".strip())]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("#", None),
        ("# C#", "C#"),
        ("## Title ###", "Title"),
        ("# The `code` of **it**", "The code of it"),
        ("# See [the docs](http://example.org/a)", "See the docs"),
        ("   # indented", "indented"),
    ],
)
def test_heading_text(load_file, line, title):
    assert summary(load_file("a.md", f"{line}\nrest")) == [(title, "rest")]


def test_front_matter_is_metadata(load_file):
    loaded = load_file("a.md", "---\ntitle: Doc\ntags: [x]\nsection: own\n---\nintro\n## B\nb\n")
    assert summary(loaded) == [("Doc", "intro"), ("Doc > B", "b")]
    assert loaded[0][1].metadata == {"title": "Doc", "tags": ["x"], "field_section": "own", "section": "B"}


def test_crlf_and_old_mac_newlines(load_file):
    assert summary(load_file("a.md", "# A\r\none\r\ntwo\r\n")) == [("A", "one\ntwo")]
    assert summary(load_file("b.md", "# A\rone\r")) == [("A", "one")]


def test_empty_and_blank(load_file):
    assert summary(load_file("a.md", "")) == []
    assert summary(load_file("b.md", " \n\n")) == []


@pytest.mark.parametrize(("start", "run"), [("# ", " "), ("# ", "["), ("# ", "[a]("), ("", "#"), ("", "`")])
def test_hostile_lines_take_linear_time(load_file, grows_linearly, start, run):
    texts = (f"{start}{run * (n // len(run))}#\nrest" for n in (125_000, 500_000))
    grows_linearly(lambda text: load_file("a.md", text), *texts)
