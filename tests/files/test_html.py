from __future__ import annotations

import sys

import pytest

from sidr_rag.errors import FileReadError, MissingExtraError
from sidr_rag.files import Limits


def summary(loaded):
    return [(section.title, section.text) for section in loaded[0]]


def test_visible_text_in_sections(load_file):
    loaded = load_file(
        "a.html",
        """<!DOCTYPE html><html><head><title>The  Doc</title><style>p{}</style><script>var a = "<p>no</p>";</script>
        </head><body><nav><a href="/">Home</a></nav><p>Intro &amp; more&nbsp;text<br>next line</p>
        <h1>Guide<a href="#g">¶</a></h1><p>One <b>bold</b>\n word.</p><ul><li>first<li>second</ul><p>After.</p>
        <h2>Tables</h2><table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>
        <h2>Code</h2><pre>x = 1\n  y = 2</pre><noscript>no</noscript><template>no</template></body></html>""",
    )
    assert summary(loaded) == [
        ("The Doc", "Intro & more text\nnext line"),
        ("Guide", "One bold word.\n\nfirst\nsecond\n\nAfter."),
        ("Guide > Tables", "a\tb\n1\t2"),
        ("Guide > Code", "x = 1\n  y = 2"),
    ]
    assert loaded[0][2].metadata == {"title": "The Doc", "section": "Guide > Tables"}


def test_block_inside_a_heading(load_file):
    assert summary(load_file("a.html", "<h1><div>Big</div><div>Title</div></h1><p>x")) == [("Big Title", "x")]


def test_title_of_a_drawing_is_not_the_documents(load_file):
    assert summary(load_file("a.html", "<body><svg><title>icon</title><text>no</text></svg><p>x")) == [(None, "x")]


def test_fragment_without_any_structure(load_file):
    assert summary(load_file("a.htm", "just words")) == [(None, "just words")]


def test_external_entities_are_not_read(load_file, tmp_path):
    (tmp_path / "secret.txt").write_text("top secret", encoding="utf-8")
    doctype = f'<!DOCTYPE html [<!ENTITY x SYSTEM "file://{tmp_path}/secret.txt">]>'
    sections, _ = load_file("a.xhtml", f'<?xml version="1.0"?>{doctype}<html><body><p>a &x; b</p></body></html>')
    assert "top secret" not in "".join(section.text for section in sections)


@pytest.mark.parametrize(
    ("charset", "text"),
    [("windows-1251", "Привет, мир"), ("shift_jis", "日本語の文章"), ("koi8-r", "Привет, мир"), ("gbk", "中文网页")],
)
def test_declared_encoding(load_file, charset, text):
    page = f'<html><head><meta charset="{charset}"></head><body><p>{text}</p></body></html>'
    assert summary(load_file("a.html", page.encode(charset))) == [(None, text)]


def test_wrong_declaration_loses_to_valid_utf8(load_file):
    page = '<meta http-equiv="content-type" content="text/html; charset=iso-8859-1"><p>naïve 漢字'
    assert summary(load_file("a.html", page)) == [(None, "naïve 漢字")]


@pytest.mark.parametrize("name", ["base64", "rot13", "zip", "unicode_escape", "idna", "no-such"])
def test_odd_declarations_are_not_believed(load_file, name):
    page = f'<meta charset="{name}"><p>'.encode() + "Frühstück".encode("cp1252")
    assert summary(load_file("a.html", page)) == [(None, "Frühstück")]


def test_ten_megabytes_of_nesting(load_file):
    depth = 900_000
    page = "<div>" * depth + "deep down" + "</div>" * depth + "<p>the end"
    assert summary(load_file("a.html", page)) == [(None, "deep down\n\nthe end")]


def test_unclosed_elements(load_file):
    page = "<b><i>" * 100_000 + "bold" + "<p>" * 100_000 + "last"
    assert summary(load_file("a.html", page)) == [(None, "bold\n\nlast")]


def test_time_limit_is_kept_on_quadratic_input(load_file):
    page = "<div>" * 200_000 + "</p>" * 400_000
    with pytest.raises(FileReadError, match=r"longer than html_timeout_s=0\.5 to parse"):
        load_file("a.html", page, Limits(html_timeout_s=0.5))


def test_nul_surrogates_and_empty(load_file):
    assert summary(load_file("a.html", "<p>a\0b &#xD800; &#0; c</p>" + " " * 100))[0][1].startswith("ab ")
    assert summary(load_file("b.html", "")) == []
    assert summary(load_file("c.html", "  \n ")) == []
    assert summary(load_file("d.html", "<!-- never closed <p>x")) == []


def test_binary_is_refused(load_file):
    with pytest.raises(FileReadError, match="not a text file"):
        load_file("a.html", b"\x00\x01\x02\x03" * 100)


def test_missing_package_names_the_extra(load_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sidr-rag\[files\]'"):
        load_file("a.html", "<p>x")
