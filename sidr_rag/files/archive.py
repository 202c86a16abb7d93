"""Opening a zip archive only after its directory has shown that it is no bomb."""

from __future__ import annotations

import struct
import zipfile
from typing import BinaryIO

from sidr_rag.errors import FileReadError
from sidr_rag.files.limits import Limits

# Office documents have some dozens of parts; this is room for ten thousand.
_MAX_DIRECTORY_BYTES = 2_000_000
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_ZIP64_MARK = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES = 20
_MAX_COMMENT_BYTES = 65_535


def open_archive(file: BinaryIO, limits: Limits) -> zipfile.ZipFile:
    """Open an archive whose parts together unpack to at most `limits.max_decompressed_bytes`.

    The standard library never unpacks more of a part than the directory declares, so the declared sizes bound it.

    Raises:
        FileReadError: it is no zip archive, is encrypted, or is larger inside than the limits allow.
    """
    size = _check_directory(file)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise FileReadError("a damaged zip archive") from error
    parts = archive.infolist()
    total = sum(part.file_size for part in parts)
    if total > limits.max_decompressed_bytes:
        raise FileReadError(
            f"unpacks to {total:,} bytes, more than max_decompressed_bytes={limits.max_decompressed_bytes:,}"
        )
    if any(not 0 <= part.header_offset < size for part in parts):
        raise FileReadError("a damaged zip archive")
    if any(part.flag_bits & 1 for part in parts):
        raise FileReadError("encrypted")
    return archive


def _check_directory(file: BinaryIO) -> int:
    """Refuse a directory that would itself take much memory, looking where the standard library looks.

    Returns:
        The file's size in bytes.
    """
    size = file.seek(0, 2)
    start = max(0, size - _END.size - _MAX_COMMENT_BYTES - _ZIP64_LOCATOR_BYTES)
    file.seek(start)
    tail = file.read()
    file.seek(0)
    at = len(tail) - _END.size
    if at < 0 or tail[at : at + 4] != _END_MARK or tail[-2:] != b"\0\0":
        at = tail.rfind(_END_MARK)
    if at < 0 or at + _END.size > len(tail):
        raise FileReadError("not a zip archive")
    directory_bytes = _END.unpack_from(tail, at)[5]
    locator = tail[max(0, at - _ZIP64_LOCATOR_BYTES) : at]
    if directory_bytes > _MAX_DIRECTORY_BYTES or locator.startswith(_ZIP64_MARK):
        raise FileReadError("a zip archive with too many parts for a document")
    return size
