"""A consistent copy of a store in another folder, put there in one commit."""

from __future__ import annotations

import uuid
from pathlib import Path

from sidr_rag.errors import IndexFormatError
from sidr_rag.index.database import Database
from sidr_rag.index.folder import Folder, in_blocks, remove_quietly
from sidr_rag.index.lock import WriterLock
from sidr_rag.index.merge import merge_segments
from sidr_rag.index.passages import SegmentChange, SegmentEntry
from sidr_rag.index.store import Store


def write_snapshot(source: Store, path: Path, *, overwrite: bool = False) -> None:
    """Copy one state of a store, so that the folder holds its old contents or the new ones, never a mix.

    Args:
        source: any store; its own writers wait.
        path: a new or empty folder, an earlier copy of the same store, or (with overwrite) any store.
        overwrite: whether another store's contents may be replaced.

    Raises:
        IndexFormatError: if the folder holds other files, or another store and overwrite is False.
        StoreLockedError: if a writer has the target open.
        StorageError: if the disk refuses; the target then has its old contents.
    """
    folder = Folder(path)
    made = not folder.is_store()
    if made:
        folder.create(source.settings)
    elif folder.store_id() != source.store_id and not overwrite:
        raise IndexFormatError(
            f"{path}: holds another store; choose another folder, or overwrite it with from_texts(..., overwrite=True)"
        )
    lock = WriterLock(folder.lock)
    lock.acquire()
    try:
        database = Database(folder.database, read_only=False)
        try:
            _copy(source, folder, database)
        finally:
            database.close()
        if made:
            folder.finish(source.store_id)
    except BaseException:
        if made:
            folder.remove()
        raise
    finally:
        lock.release()


def _copy(source: Store, folder: Folder, database: Database) -> None:
    transaction = database.begin()
    written: list[SegmentEntry] = []
    try:
        with source.frozen() as index:
            transaction.clear()
            transaction.set_settings({"settings": source.settings.to_json()})
            for block in in_blocks(source.scan()):
                transaction.insert(block)
            for view in index.views:
                segment = view.segment if view.live is None else merge_segments([(view.segment, view.live)])
                if segment.n_rows:
                    name = uuid.uuid4().hex
                    written.append(SegmentEntry(name, segment.n_rows, int(segment.seqs[0]), int(segment.seqs[-1])))
                    segment.save(folder.segment_file(name))
        transaction.commit(SegmentChange(written), index.next_seq)
    except BaseException:
        transaction.rollback()
        for entry in written:
            remove_quietly(folder.segment_file(entry.name))
        raise
    folder.drop_unlisted({entry.name for entry in written})
