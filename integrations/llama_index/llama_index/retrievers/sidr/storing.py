"""What retriever and vector store share: nodes, documents and files into the engine's store, and out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import BaseNode, Document, TransformComponent
from llama_index.core.settings import Settings
from llama_index.retrievers.sidr.filters import Filters, engine_filter
from llama_index.retrievers.sidr.nodes import document_of, of_documents, to_node, to_passages

from sidr_rag import InvalidTypeError, Passage, SiDR
from sidr_rag.index.replace import Replaced, replace_sources
from sidr_rag.index.store import Store
from sidr_rag.inputs import ids_list, rows_of_passages
from sidr_rag.listing import list_passages, matching_seqs
from sidr_rag.search.filters import filter_mask, parse_filter

if TYPE_CHECKING:
    from sidr_rag.files import Limits
    from sidr_rag.files.walk import PathLike
    from sidr_rag.uploads import UploadReport


def find_nodes(engine: SiDR, node_ids: Iterable[str] | None, filters: Filters | None) -> list[BaseNode]:
    """Nodes by id, in the order asked for, or by filter, oldest first; with both, those that both name."""
    if node_ids is None:
        return [to_node(passage) for passage in list_passages(engine, filter=engine_filter(filters))]
    return [to_node(passage) for passage in _by_ids(engine, node_ids, filters)]


def delete_found(engine: SiDR, node_ids: Iterable[str] | None, filters: Filters | None) -> int:
    """Delete what `find_nodes` finds, all or none; says how many there were."""
    if node_ids is None:
        return len(_replace(engine, (), engine_filter(filters) or {}).removed)
    if filters is None:
        return engine.delete(node_ids)
    return engine.delete([passage.id for passage in _by_ids(engine, node_ids, filters)])


def delete_documents(engine: SiDR, document_ids: Sequence[str]) -> int:
    """Delete all nodes of some documents, all or none; says how many there were.

    Raises:
        InvalidTypeError: if an id is no string.
    """
    for document_id in document_ids:
        if not isinstance(document_id, str):
            raise InvalidTypeError(f"ref_doc_id is a {type(document_id).__name__}; ids are strings")
    return len(_replace(engine, (), of_documents(document_ids)).removed)


def refresh_nodes(engine: SiDR, nodes: Iterable[BaseNode], objects: dict[str, Any]) -> Replaced:
    """Put nodes in the place of all that their documents had before, in one commit."""
    given = list(nodes) if not isinstance(nodes, (str, bytes, BaseNode)) and isinstance(nodes, Iterable) else nodes
    passages = list(to_passages(given, objects))
    ids = {document_id for document_id, _ in map(document_of, given) if document_id is not None}
    return _replace(engine, passages, of_documents(sorted(ids)) if ids else None)


def refresh_documents(
    engine: SiDR,
    documents: Sequence[Document],
    transformations: Sequence[TransformComponent] | None,
    objects: dict[str, Any],
) -> list[bool]:
    """Split and store documents that are new or differ from what is stored, in one commit; says which they were."""
    for i, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InvalidTypeError(f"documents[{i}] is a {type(document).__name__}; give Document objects")
    changed = [_stored_hash(engine, document.node_id) != document.hash for document in documents]
    # Of equal ids the last counts.
    new = {document.node_id: document for document, differs in zip(documents, changed, strict=True) if differs}
    if new:
        steps = Settings.transformations if transformations is None else transformations
        nodes = run_transformations(list(new.values()), list(steps))
        _replace(engine, list(to_passages(nodes, objects)), of_documents(list(new)))
    return changed


class FilesMixin:
    """Files into `self.engine`; the async methods do the same in a worker thread."""

    if TYPE_CHECKING:
        engine: SiDR

    def add_files(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        max_tokens: int = 160,
        overlap: int = 0,
        limits: Limits | None = None,
        on_file: Callable[[str, int], None] | None = None,
    ) -> UploadReport:
        """Read, split and add files and folders; a file that is there already is replaced, in one commit.

        See `sidr_rag.uploads.add_files` for ids, metadata, arguments and errors. A file that cannot be read is named
        in the report and keeps its older nodes. The source document of a file's nodes is the file's absolute path.
        """
        from sidr_rag.uploads import add_files

        return add_files(self.engine, paths, max_tokens=max_tokens, overlap=overlap, limits=limits, on_file=on_file)

    def sync_folder(
        self,
        folder: PathLike | Iterable[PathLike],
        *,
        max_tokens: int = 160,
        overlap: int = 0,
        limits: Limits | None = None,
        on_file: Callable[[str, int], None] | None = None,
    ) -> UploadReport:
        """`add_files`, and nodes of files that are gone from the folder are removed, in the same commit.

        See `sidr_rag.uploads.sync_folder`.
        """
        from sidr_rag.uploads import sync_folder

        return sync_folder(self.engine, folder, max_tokens=max_tokens, overlap=overlap, limits=limits, on_file=on_file)

    async def aadd_files(self, paths: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """`add_files` in a thread."""
        return await asyncio.to_thread(self.add_files, paths, **options)

    async def async_folder(self, folder: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """`sync_folder` in a thread."""
        return await asyncio.to_thread(self.sync_folder, folder, **options)

    def close(self) -> None:
        """Release the store's folder and threads."""
        self.engine.close()


def _by_ids(engine: SiDR, node_ids: Iterable[str], filters: Filters | None) -> list[Passage]:
    found = engine.get(ids_list(node_ids))
    keep = filter_mask(parse_filter(engine_filter(filters)), [passage.metadata for passage in found])
    return [passage for passage, passes in zip(found, keep.tolist(), strict=True) if passes]


def _stored_hash(engine: SiDR, document_id: str) -> str | None:
    found = list_passages(engine, filter=of_documents([document_id]), limit=1)
    return document_of(to_node(found[0]))[1] if found else None


def _replace(engine: SiDR, passages: Iterable[Passage], stale: Mapping[str, Any] | None) -> Replaced:
    """Store passages and delete what matches the filter and is not among them, in one commit of a local store."""
    if not isinstance(engine._store, Store):
        return _replace_elsewhere(engine, passages, stale)
    condition = parse_filter(stale)
    rows = rows_of_passages(passages, [])
    return replace_sources(
        engine._store, rows, lambda before: [] if stale is None else matching_seqs(before, condition).tolist()
    )


def _replace_elsewhere(engine: SiDR, passages: Iterable[Passage], stale: Mapping[str, Any] | None) -> Replaced:
    """The same on a search engine or over several folders, which have no commit for it: what is new first."""
    given = {passage.id: passage for passage in passages}
    stored = {passage.id: passage for passage in engine.get(given)}
    new = [passage for passage in given.values() if stored.get(passage.id) != passage]
    old = [] if stale is None else [passage.id for passage in list_passages(engine, filter=stale)]
    written = engine.add_passages(new)
    gone = [passage_id for passage_id in old if passage_id not in given]
    engine.delete(gone)
    return Replaced(written, len(given) - len(new), gone)
