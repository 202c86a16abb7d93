from __future__ import annotations

import codecs
import io

import pytest

from sidr_rag.errors import FileReadError
from sidr_rag.files.encoding import Encoding, detect

WESTERN = "Zum Frühstück gibt es Brötchen, Käse und Gurken; später vielleicht noch Äpfel. " * 3


def decoded(data: bytes, declared: str | None = None) -> str:
    encoding = detect(io.BytesIO(data), declared)
    return data.decode(encoding.name, "replace")


@pytest.mark.parametrize(
    ("codec", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
        ("utf-32-be", codecs.BOM_UTF32_BE),
    ],
)
def test_byte_order_mark_decides_and_is_dropped(codec, mark):
    assert decoded(mark + "Grüße 漢字 😀".encode(codec)) == "Grüße 漢字 😀"


def test_utf8_without_mark():
    assert detect(io.BytesIO("Grüße 漢字 😀".encode())) == Encoding("utf-8")


def test_character_across_blocks_is_valid_utf8():
    data = b"a" * ((1 << 20) - 1) + "é".encode() + b"b" * 10
    assert detect(io.BytesIO(data)) == Encoding("utf-8")


def test_western_text_is_cp1252():
    assert decoded(WESTERN.encode("cp1252")) == WESTERN
    assert decoded("“curly” quotes – and a dash".encode("cp1252")) == "“curly” quotes – and a dash"


def test_bytes_that_cp1252_lacks_are_latin1():
    assert detect(io.BytesIO(WESTERN.encode("cp1252") + b"\x81")).name == "latin-1"


def test_damaged_utf8_stays_utf8():
    data = WESTERN.encode() * 5 + b"\xff" + b" end"
    assert detect(io.BytesIO(data)) == Encoding("utf-8", 1)


@pytest.mark.parametrize("codec", ["cp1251", "koi8-r"])
def test_other_scripts_are_refused_rather_than_garbled(codec):
    with pytest.raises(FileReadError, match="save it as UTF-8"):
        detect(io.BytesIO("Съешь же ещё этих мягких французских булок".encode(codec)))


def test_declared_encoding_is_believed_after_utf8():
    russian = "Съешь же ещё этих мягких французских булок"
    assert decoded(russian.encode("cp1251"), "windows-1251") == russian
    assert decoded(russian.encode(), "windows-1251") == russian


@pytest.mark.parametrize(
    "data",
    [
        bytes(1000),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 4,
        b"\x7fELF" + bytes(range(256)) * 4,
        "plain ascii as UTF-16 without a mark".encode("utf-16-le"),
        b"\xff\xfb\x90\x64" + b"\x01\x02\x03\x04\x05" * 50,
    ],
)
def test_binary_content_is_not_text(data):
    with pytest.raises(FileReadError, match="not a text file"):
        detect(io.BytesIO(data))


def test_a_stray_nul_in_text_is_no_obstacle():
    assert detect(io.BytesIO(b"some text\0 with one NUL in a long enough line")) == Encoding("utf-8")


def test_private_key_is_refused():
    with pytest.raises(FileReadError, match="private key"):
        detect(io.BytesIO(b"\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n"))
    assert detect(io.BytesIO(b"It starts with -----BEGIN RSA PRIVATE KEY-----, see?")).name == "utf-8"


def test_empty():
    assert detect(io.BytesIO(b"")) == Encoding("utf-8")
