"""Bytes to text: which encoding a file is in, and whether it is text at all."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from sidr_rag.errors import FileReadError
from sidr_rag.files.document import Fault
from sidr_rag.files.limits import Limits
from sidr_rag.files.opening import open_regular

_BLOCK = 1 << 20
_HEAD = 4_096
# UTF-32 first: its little-endian mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Everything below 0x20 but tab, newlines, form feed, backspace and escape (man pages, terminal logs); and DEL.
_CONTROLS = bytes(set(range(32)) - {8, 9, 10, 12, 13, 27}) + b"\x7f"
_ASCII = bytes(range(128))
_UNDEFINED_CP1252 = b"\x81\x8d\x8f\x90\x9d"

_MAX_CONTROLS_UTF8 = 0.05
_MAX_CONTROLS_OTHER = 0.001
# Western text has an accent in one letter of ten at most; more means another script, which cp1252 would garble.
_MAX_HIGH = 0.3
_DAMAGE_RATIO = 10

NOT_TEXT = "not a text file"


class Encoding(NamedTuple):
    """How to decode a file.

    Attributes:
        name: a Python codec.
        replaced: number of undecodable places that become U+FFFD.
    """

    name: str
    replaced: int = 0


def detect(file: BinaryIO, declared: str | None = None) -> Encoding:
    """Tell the encoding of a seekable file, reading all of it in blocks; the file is left at its start.

    A byte-order mark decides; else valid UTF-8; else `declared`; else mostly valid UTF-8 with damage;
    else cp1252 (latin-1 where it uses bytes that cp1252 lacks) if the bytes look like Western text.

    Args:
        file: the bytes.
        declared: a Python codec that the file names for itself; None if it names none.

    Raises:
        FileReadError: the content is not text, or its encoding cannot be told.
    """
    head = file.read(100)
    file.seek(0)
    if head.lstrip().startswith(b"-----BEGIN ") and b"PRIVATE KEY" in head:
        raise FileReadError("holds a private key")
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name)
    size, controls, nuls, high, undefined = _count(file)
    if _is_utf8(file):
        if controls > _MAX_CONTROLS_UTF8 * size:
            raise FileReadError(NOT_TEXT)
        return Encoding("utf-8")
    if nuls or controls > _MAX_CONTROLS_OTHER * size:
        raise FileReadError(NOT_TEXT)
    if declared is not None:
        return Encoding(declared)
    good, bad = _utf8_damage(file)
    if good > _DAMAGE_RATIO * bad:
        return Encoding("utf-8", bad)
    if high > _MAX_HIGH * size:
        raise FileReadError("not UTF-8, and its encoding cannot be told; save it as UTF-8")
    return Encoding("latin-1" if undefined else "cp1252")


def open_text(
    path: Path, limits: Limits, fault: Fault, declared: Callable[[bytes], str | None] | None = None
) -> TextIO:
    """Open a text file in its detected encoding, newlines untouched; damaged bytes become U+FFFD and are reported.

    Args:
        path: the file.
        limits: how large it may be.
        fault: told of damaged bytes.
        declared: finds, in the file's first 4,096 bytes, the Python codec that the file names for itself.

    Raises:
        FileReadError: as `detect` and `open_regular`.
        OSError: as `open_regular`.
    """
    file = open_regular(path, limits)
    try:
        name = declared(file.read(_HEAD)) if declared else None
        file.seek(0)
        encoding = detect(file, name)
    except BaseException:
        file.close()
        raise
    if encoding.replaced:
        fault(f"{encoding.replaced:,} places are not valid UTF-8 and were replaced by U+FFFD")
    return io.TextIOWrapper(file, encoding=encoding.name, errors="replace", newline="")


def read_text(path: Path, limits: Limits, fault: Fault, declared: Callable[[bytes], str | None] | None = None) -> str:
    """The whole text of a file, as `open_text` reads it.

    Raises:
        FileReadError: as `open_text`.
        OSError: as `open_text`.
    """
    with open_text(path, limits, fault, declared) as file:
        return file.read()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(_BLOCK):
        yield block
    file.seek(0)


def _count(file: BinaryIO) -> tuple[int, int, int, int, int]:
    size = controls = nuls = high = undefined = 0
    for block in _blocks(file):
        size += len(block)
        controls += len(block) - len(block.translate(None, _CONTROLS))
        nuls += block.count(0)
        upper = block.translate(None, _ASCII)
        high += len(upper)
        undefined += len(upper) - len(upper.translate(None, _UNDEFINED_CP1252))
    return size, controls, nuls, high, undefined


def _is_utf8(file: BinaryIO) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        for block in _blocks(file):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        file.seek(0)
        return False
    return True


def _utf8_damage(file: BinaryIO) -> tuple[int, int]:
    """Valid characters beyond ASCII, and places where decoding fails."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    good = bad = 0
    for block in _blocks(file):
        text = decoder.decode(block)
        wrong = text.count("\ufffd")
        bad += wrong
        good += len(text) - len(text.encode("ascii", "ignore")) - wrong
    return good, bad + len(decoder.decode(b"", final=True))
