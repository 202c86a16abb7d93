"""Word documents: the text of the body in order, in sections under headings; table rows as lines."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sidr_rag.errors import FileReadError
from sidr_rag.files.archive import open_archive
from sidr_rag.files.document import Fault, Section
from sidr_rag.files.docx_events import Body, Events, MainPart, Styles, Title
from sidr_rag.files.extras import require
from sidr_rag.files.limits import Limits
from sidr_rag.files.opening import open_regular

_CHUNK = 1 << 16
# What an encrypted document, or one of the old binary format, begins with.
_OLE_MARK = b"\xd0\xcf\x11\xe0"


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per heading; deleted text of tracked changes is left out, inserted text is read.

    Raises:
        FileReadError: the file is encrypted, damaged, no Word document, or unpacks to too much.
        MissingExtraError: lxml is not installed.
        OSError: the file cannot be opened.
    """
    etree = require("lxml.etree", "lxml", "reading docx files")
    with open_regular(path, limits) as file:
        mark = file.read(len(_OLE_MARK))
        if not mark:
            return
        if mark == _OLE_MARK:
            raise FileReadError("encrypted, or in the old .doc format")
        try:
            with open_archive(file, limits) as archive:
                yield from _sections(archive, etree)
        except etree.XMLSyntaxError:
            raise FileReadError("a part of the document is not well-formed XML") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
            raise FileReadError("a damaged zip archive") from None


def _sections(archive: zipfile.ZipFile, etree: Any) -> Iterator[Section]:
    main = MainPart()
    _parse_if_there(archive, etree, "_rels/.rels", main)
    name = main.target.lstrip("/")
    if name not in archive.namelist():
        raise FileReadError("not a Word document")
    styles = Styles()
    _parse_if_there(archive, etree, posixpath.join(posixpath.dirname(name), "styles.xml"), styles)
    title = Title()
    _parse_if_there(archive, etree, "docProps/core.xml", title)
    body = Body(styles.levels(), title.text)
    for _ in _parse(archive, etree, name, body):
        yield from body.outline.take()
    yield from body.outline.finish()


def _parse(archive: zipfile.ZipFile, etree: Any, name: str, target: Events) -> Iterator[None]:
    """Feed a part to an event target piece by piece: no tree is built, no entity resolved, nothing fetched."""
    parser = etree.XMLParser(target=target, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    with archive.open(name) as part:
        while chunk := part.read(_CHUNK):
            parser.feed(chunk)
            yield
    parser.close()


def _parse_if_there(archive: zipfile.ZipFile, etree: Any, name: str, target: Events) -> None:
    if name in archive.namelist():
        for _ in _parse(archive, etree, name, target):
            pass
