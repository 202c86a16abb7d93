"""What retriever and vector store share: documents and files into the engine's store, and out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor

from langchain_sidr.documents import document_columns, to_document
from sidr_rag import InvalidTypeError, SiDR

if TYPE_CHECKING:
    from sidr_rag.files import Limits
    from sidr_rag.files.walk import PathLike
    from sidr_rag.uploads import UploadReport

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function in a worker thread, so that the event loop goes on."""
    return await run_in_executor(None, partial(function, *arguments, **named))


class StoringMixin:
    """Methods over `self.engine`; the async ones do the same in a worker thread."""

    if TYPE_CHECKING:
        engine: SiDR
        title_key: str | None

    # Documents

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        titles: Iterable[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, all or none; of an id that exists the document is replaced. Returns the id of each.

        Args:
            texts: kept exactly as given; consumed once.
            metadatas: JSON-like, one for each text.
            ids: one for each text; None makes one.
            titles: one for each text, indexed before it.
            kwargs: `num_workers` of `SiDR.add`; and `batch_size`, which LangChain's indexing gives: a call is one
                commit whatever it says.

        Raises:
            InvalidInputError, InvalidTypeError: naming argument and position; nothing is then stored.
        """
        return self.engine.add(texts, ids=ids, metadatas=metadatas, titles=titles, **_for_engine(kwargs))

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents, all or none; their ids are kept, made where there is none, or replaced by `ids`."""
        return self.engine.add(**document_columns(documents, ids), **_for_engine(kwargs))

    def get_by_ids(self, ids: Iterable[str]) -> list[Document]:
        """Documents by id, in the order asked for; missing ids are left out."""
        return [to_document(passage, title_key=self.title_key) for passage in self.engine.get(ids)]

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        titles: Iterable[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """`add_texts` in a thread."""
        return await in_thread(self.add_texts, texts, metadatas, ids=ids, titles=titles, **kwargs)

    async def aadd_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """`add_documents` in a thread."""
        return await in_thread(self.add_documents, documents, ids=ids, **kwargs)

    async def aget_by_ids(self, ids: Iterable[str]) -> list[Document]:
        """`get_by_ids` in a thread."""
        return await in_thread(self.get_by_ids, ids)

    # Files

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
        in the report and keeps its older documents.
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
        """`add_files`, and documents of files that are gone from the folder are removed, in the same commit.

        See `sidr_rag.uploads.sync_folder`.
        """
        from sidr_rag.uploads import sync_folder

        return sync_folder(self.engine, folder, max_tokens=max_tokens, overlap=overlap, limits=limits, on_file=on_file)

    async def aadd_files(self, paths: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """`add_files` in a thread."""
        return await in_thread(self.add_files, paths, **options)

    async def async_folder(self, folder: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """`sync_folder` in a thread."""
        return await in_thread(self.sync_folder, folder, **options)

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a folder, for `open`."""
        self.engine.save(path)

    def close(self) -> None:
        """Release the store's folder and threads."""
        self.engine.close()


def _for_engine(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - {"batch_size", "num_workers"})
    if unknown:
        raise InvalidTypeError(
            f"unknown options {', '.join(map(repr, unknown))}; known are ids, metadatas, titles and num_workers"
        )
    return {name: value for name, value in options.items() if name == "num_workers"}
