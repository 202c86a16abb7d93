"""Passage ids and texts in the form that engines take: UUIDs, and UTF-8 without loss."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid

from sidr_rag.errors import IndexFormatError

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:sidr-rag:passage")
_RESERVED = "\x01"  # texts that begin so are marked too, so that an engine's adapter may use others of its own
_MARK = _RESERVED + "b64:"


def key_of(passage_id: str) -> str:
    """The UUID of a passage id: version 5 (SHA-1 of a namespace and the name), also for ids that are not UTF-8."""
    digest = hashlib.sha1(_NAMESPACE.bytes + passage_id.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return str(uuid.UUID(bytes=digest.digest()[:16], version=5))


def to_wire(text: str) -> str:
    """The same text where it is plain UTF-8; else marked and in base64."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        pass
    else:
        if "\0" not in text and not text.startswith(_RESERVED):
            return text
    return _MARK + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def from_wire(text: str) -> str:
    """What `to_wire` was given.

    Raises:
        IndexFormatError: if it is marked and no base64.
    """
    if not text.startswith(_MARK):
        return text
    try:
        return base64.b64decode(text[len(_MARK) :], validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError) as e:
        raise IndexFormatError("a record of the collection holds a text that cannot be decoded") from e
