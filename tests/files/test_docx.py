from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from sidr_rag.errors import FileReadError, MissingExtraError
from sidr_rag.files import Limits
from sidr_rag.files.archive import open_archive

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def summary(loaded):
    return [(section.title, section.text) for section in loaded[0]]


def packed(body: str, styles: str | None = None, **parts: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "word/document.xml", body if body.startswith("<?") else f"<w:document {W} {MC}>{body}</w:document>"
        )
        if styles is not None:
            archive.writestr("word/styles.xml", f"<w:styles {W}>{styles}</w:styles>")
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_document_of_an_office_program(load_file, tmp_path: Path):
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.core_properties.title = "The Manual"
    document.add_paragraph("Before any heading.")
    document.add_heading("Guide", 1)
    document.add_paragraph("Hello & welcome.")
    document.add_heading("Install", 2)
    document.add_paragraph("Run it.").add_run(" Twice.").bold = True
    table = document.add_table(rows=2, cols=2)
    for i, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"cell {i}"
    document.add_paragraph("After\tthe\ntable.")
    document.save(str(tmp_path / "a.docx"))
    loaded = load_file("a.docx")
    assert summary(loaded) == [
        ("The Manual", "Before any heading."),
        ("Guide", "Hello & welcome."),
        ("Guide > Install", "Run it. Twice.\n\ncell 0\tcell 1\ncell 2\tcell 3\n\nAfter\tthe\ntable."),
    ]
    assert loaded[0][2].metadata == {"title": "The Manual", "section": "Guide > Install"}
    assert loaded[1] == []


def test_title_style_is_above_headings(load_file, tmp_path: Path):
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.core_properties.title = ""
    document.add_heading("Report", 0)
    document.add_heading("Part", 1)
    document.add_paragraph("x")
    document.save(str(tmp_path / "a.docx"))
    assert summary(load_file("a.docx")) == [("Report > Part", "x")]


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def test_styles_by_name_outline_level_and_base(load_file):
    styles = (
        '<w:style w:type="paragraph" w:styleId="U1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Own"><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
        '<w:style w:type="paragraph" w:styleId="Kid"><w:name w:val="Kid"/><w:basedOn w:val="Own"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="L1"><w:basedOn w:val="L2"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="L2"><w:basedOn w:val="L1"/></w:style>'
        '<w:style w:type="character" w:styleId="C"><w:name w:val="heading 3"/></w:style>'
    )
    body = paragraph("A", "U1") + paragraph("a", "L1") + paragraph("B", "Kid") + paragraph("b", "C")
    assert summary(load_file("a.docx", packed(body, styles))) == [("A", "a"), ("A > B", "b")]


def test_tracked_changes_text_boxes_and_nested_tables(load_file):
    body = (
        "<w:p><w:ins><w:r><w:t>new </w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r><w:t>text</w:t></w:r></w:p>"
        "<w:p><w:r><mc:AlternateContent><mc:Choice>"
        + paragraph("box")
        + "</mc:Choice><mc:Fallback>"
        + paragraph("box")
        + "</mc:Fallback></mc:AlternateContent></w:r></w:p>"
        "<w:sdt><w:sdtContent>" + paragraph("control") + "</w:sdtContent></w:sdt>"
        "<w:tbl><w:tr><w:tc>"
        + paragraph("one")
        + "<w:tbl><w:tr><w:tc>"
        + paragraph("in")
        + "</w:tc><w:tc>"
        + paragraph("ner")
        + '</w:tc></w:tr></w:tbl></w:tc><w:tc><w:tcPr><w:gridSpan w:val="1000000000"/></w:tcPr>'
        + paragraph("two")
        + "</w:tc></w:tr></w:tbl>"
    )
    assert summary(load_file("a.docx", packed(body))) == [
        (None, "new text\n\nbox\n\ncontrol\n\none in ner\ttwo"),
    ]


def test_zip_bomb_is_refused_before_it_is_opened(load_file):
    bomb = packed(paragraph("x") + " " * 3_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(
        FileReadError, match=r"unpacks to 3,0\d\d,\d\d\d bytes, more than max_decompressed_bytes=1,000,000"
    ):
        load_file("a.docx", bomb, Limits(max_decompressed_bytes=1_000_000))


def test_part_that_lies_about_its_size_is_not_unpacked_further(load_file):
    data = bytearray(packed(paragraph("x" * 100_000)))
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<L", data, entry + 24, 500)
    with pytest.raises(FileReadError):
        load_file("a.docx", bytes(data))


def test_too_many_parts(load_file):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for i in range(40_000):
            archive.writestr(f"{i:020d}", b"")
    with pytest.raises(FileReadError, match="too many parts"):
        load_file("a.docx", out.getvalue())


def test_entities_are_not_expanded(load_file, tmp_path):
    (tmp_path / "secret.txt").write_text("top secret", encoding="utf-8")
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    doctype = f'<!DOCTYPE d [<!ENTITY l0 "ha">{laughs}<!ENTITY f SYSTEM "file://{tmp_path}/secret.txt">]>'
    for name in ("l9", "f"):
        body = f'<?xml version="1.0"?>{doctype}<w:document {W}>{paragraph(f"a &{name}; b")}</w:document>'
        try:
            sections, _ = load_file("a.docx", packed(body))
        except FileReadError:
            continue
        text = "".join(section.text for section in sections)
        assert "top secret" not in text
        assert len(text) < 1_000


def test_deep_nesting_is_refused(load_file):
    with pytest.raises(FileReadError, match=r"nested more than 256 deep|not well-formed XML"):
        load_file("a.docx", packed("<w:sdt>" * 100_000 + "</w:sdt>" * 100_000))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted, or in the old .doc format"),
        (b"just text", "not a zip archive"),
        (b"PK\x05\x06", "not a zip archive"),
        (packed("<w:body>never closed"), "not well-formed XML"),
        (packed(paragraph("x"))[:-200] + packed(paragraph("x"))[-100:], "zip archive"),
    ],
)
def test_damaged_files(load_file, data, reason):
    with pytest.raises(FileReadError, match=reason):
        load_file("a.docx", data)


def test_other_archive(load_file):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("readme.txt", "x")
    with pytest.raises(FileReadError, match="not a Word document"):
        load_file("a.docx", out.getvalue())


def test_encrypted_part():
    data = bytearray(packed(paragraph("x")))
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<H", data, entry + 8, 1)
    with pytest.raises(FileReadError, match="encrypted"):
        open_archive(io.BytesIO(bytes(data)), Limits())


def test_empty(load_file):
    assert load_file("a.docx", b"") == ([], [])
    assert summary(load_file("b.docx", packed("<w:body/>"))) == []


def test_missing_package_names_the_extra(load_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    with pytest.raises(MissingExtraError, match=r"docx files needs the package 'lxml'"):
        load_file("a.docx", packed(""))
