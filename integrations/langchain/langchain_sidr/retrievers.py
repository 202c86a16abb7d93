"""SiDRRetriever: the engine as a LangChain retriever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.indexing import DeleteResponse
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator
from typing_extensions import Self

from langchain_sidr.documents import document_columns, to_document
from sidr_rag import InvalidTypeError, SiDR
from sidr_rag.pipeline import Request

if TYPE_CHECKING:
    from sidr_rag.files import FileReport, Limits

_SEARCH_OPTIONS = (
    "k",
    "rerank",
    "search",
    "filter",
    "min_score",
    "reranker",
    "first_stage",
    "query_repr",
    "max_active_dims",
)


class SiDRRetriever(BaseRetriever):
    """Finds the documents that share tokens with a question's learned sparse vector.

    Made by `from_texts`, `from_documents`, `from_folder` or `open`, or around an engine: `SiDRRetriever(engine=sidr)`.
    Every search option can also be given to one call: `retriever.invoke(question, k=8, filter={"page": {"gt": 3}})`.

    A returned `Document` has the id and text that were stored, and a copy of the metadata, with the score under
    `score_key`. The score is the re-ranking's for re-ranked documents, else the first stage's.

    Attributes:
        engine: the `sidr_rag.SiDR` that does the work.
        k: how many documents; fewer are returned where fewer match, none for 0.
        rerank: order the best m candidates by the second stage; 0 leaves them as the first stage has them.
        search: "beta" (the bag-of-tokens index), "full" or "alpha".
        filter: on metadata, applied before the cut to k; `sidr_rag.search.filters` gives the syntax.
        min_score: leave out documents whose first-stage score is lower.
        reranker: None (the model's own way), "theta", "blend", or an object with a `rerank` method.
        first_stage: "sidr", or "lexical" (the question's own words, no encoder).
        query_repr: "theta", "lex", "bin" or "bot".
        max_active_dims: cut the question's vector to this many dimensions.
        score_key: the metadata key of the score in returned documents; it replaces a stored one there. None: no score.
        title_key: the metadata key of a passage's title in returned documents that have no such key. None: no title.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_assignment=True)

    engine: SiDR = Field(repr=False, exclude=True)
    k: int = 4
    rerank: int = 0
    search: Literal["beta", "full", "alpha"] = "beta"
    filter: dict[Any, Any] | None = None
    min_score: float | None = None
    reranker: Any = None
    first_stage: Literal["sidr", "lexical"] = "sidr"
    query_repr: Literal["theta", "lex", "bin", "bot"] = "theta"
    max_active_dims: int | None = None
    score_key: str | None = "sidr_score"
    title_key: str | None = "title"
    _file_report: FileReport | None = PrivateAttr(default=None)

    @field_validator(*_SEARCH_OPTIONS, mode="before")
    @classmethod
    def _check_option(cls, value: Any, info: ValidationInfo) -> Any:
        # By the engine and before pydantic, which would take "5" and True for numbers.
        name = str(info.field_name)
        defaults = {option: cls.model_fields[option].default for option in _SEARCH_OPTIONS}
        request = Request.of(**{**defaults, name: value})
        return value if name == "filter" else getattr(request, name)

    # Making

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        titles: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        overwrite: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = "default",
        k: int = 4,
        rerank: int = 0,
        search: str = "beta",
        filter: Mapping[Any, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Index texts; they can be searched when this returns.

        Args:
            texts: what to index; kept exactly as given.
            metadatas: JSON-like, one for each text.
            ids: one for each text; None makes one.
            titles: one for each text, indexed before it.
            path: a folder to keep the store in; None keeps it in memory.
            overwrite: whether an existing store at `path` may be replaced.
            model: "default" (bundled), a folder, or a name on the model hub (needs `sidr-rag[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: "default", "binary" (the paper's), or a `sidr_rag.Weighting`.
            k: how many documents a search returns.
            rerank: how many candidates the second stage orders.
            search: "beta", "full" or "alpha".
            filter: on metadata, for every search.
            options: further attributes of the retriever, and options of `SiDR.from_texts` such as `num_threads`.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False.
        """
        own, rest = _split(cls, {"k": k, "rerank": rerank, "search": search, "filter": filter, **options})
        engine = SiDR.from_texts(
            texts,
            ids=ids,
            metadatas=metadatas,
            titles=titles,
            path=path,
            overwrite=overwrite,
            model=model,
            device=device,
            weighting=weighting,
            **rest,
        )
        return cls(engine=engine, **own)

    @classmethod
    def from_documents(
        cls, documents: Iterable[Document], *, ids: Iterable[str | None] | None = None, **options: Any
    ) -> Self:
        """The same for documents, whose ids are kept (`ids` replaces them); `options` as for `from_texts`.

        Raises:
            InvalidTypeError: also if one is no `Document`.
        """
        return cls.from_texts(**document_columns(documents, ids), **options)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path | Iterable[str | Path],
        *,
        max_tokens: int = 160,
        overlap: int = 0,
        limits: Limits | None = None,
        on_file: Callable[[str, int], None] | None = None,
        **options: Any,
    ) -> Self:
        """Read the files of one or more folders (or single files), split them and index the pieces.

        What cannot be read is left out and listed in `file_report`; see `sidr_rag.files.read_passages` for ids and
        metadata.

        Args:
            folder: where the files are.
            max_tokens: the most tokens in a document.
            overlap: tokens that neighbouring documents of a file share.
            limits: bounds on size, pages and time.
            on_file: called with the path and its number of documents after each file.
            options: as for `from_texts`.

        Raises:
            FileReadError: if a path does not exist.
        """
        from sidr_rag.files import FileReport, read_passages

        report = FileReport()
        own, rest = _split(cls, options)
        engine = SiDR.from_passages(
            lambda tokenizer: read_passages(
                folder,
                tokenizer=tokenizer,
                max_tokens=max_tokens,
                overlap=overlap,
                limits=limits,
                report=report,
                on_file=on_file,
            ),
            **rest,
        )
        retriever = cls(engine=engine, **own)
        retriever._file_report = report
        return retriever

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        read_only: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = None,
        **options: Any,
    ) -> Self:
        """Open the store in a folder, as `SiDR.open` does.

        The retriever's own attributes (`k`, `rerank` and so on) are not part of a store: give them in `options`.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        own, rest = _split(cls, options)
        engine = SiDR.open(
            path, create=create, read_only=read_only, model=model, device=device, weighting=weighting, **rest
        )
        return cls(engine=engine, **own)

    # Changing

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        titles: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Add texts, all or none; of an id that exists the document is replaced. Returns the id of each."""
        return self.engine.add(texts, ids=ids, metadatas=metadatas, titles=titles)

    def add_documents(self, documents: Iterable[Document], *, ids: Iterable[str | None] | None = None) -> list[str]:
        """Add documents, all or none; their ids are kept, made where there is none, or replaced by `ids`."""
        return self.engine.add(**document_columns(documents, ids))

    def delete(self, ids: Iterable[str]) -> DeleteResponse:
        """Delete documents, all or none; unknown ids are ignored. `num_deleted` says how many existed."""
        return DeleteResponse(num_deleted=self.engine.delete(ids))

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        titles: Iterable[str | None] | None = None,
    ) -> list[str]:
        """`add_texts` in a thread."""
        return await run_in_executor(None, partial(self.add_texts, texts, metadatas, ids=ids, titles=titles))

    async def aadd_documents(
        self, documents: Iterable[Document], *, ids: Iterable[str | None] | None = None
    ) -> list[str]:
        """`add_documents` in a thread."""
        return await run_in_executor(None, partial(self.add_documents, documents, ids=ids))

    async def adelete(self, ids: Iterable[str]) -> DeleteResponse:
        """`delete` in a thread."""
        return await run_in_executor(None, self.delete, ids)

    # Looking and keeping

    def get_by_ids(self, ids: Iterable[str]) -> list[Document]:
        """Documents by id, in the order asked for; missing ids are left out."""
        return [to_document(passage, title_key=self.title_key) for passage in self.engine.get(ids)]

    async def aget_by_ids(self, ids: Iterable[str]) -> list[Document]:
        """`get_by_ids` in a thread."""
        return await run_in_executor(None, self.get_by_ids, ids)

    @property
    def file_report(self) -> FileReport | None:
        """What `from_folder` did with each file; None for a retriever made in another way."""
        return self._file_report

    def save(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a folder, for `open`."""
        self.engine.save(path)

    def close(self) -> None:
        """Release the store's folder and threads."""
        self.engine.close()

    # Searching

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        return self._found(query, options)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        return await run_in_executor(None, self._found, query, options)

    def _found(self, query: str, options: dict[str, Any]) -> list[Document]:
        if not isinstance(query, str):
            raise InvalidTypeError(f"query is a {type(query).__name__}; give a string, or use batch for several")
        # LangChain hands its own "verbose" on to the retriever.
        unknown = sorted(set(options) - {*_SEARCH_OPTIONS, "verbose"})
        if unknown:
            raise InvalidTypeError(
                f"unknown search options {', '.join(map(repr, unknown))}; known are {', '.join(_SEARCH_OPTIONS)}"
            )
        chosen = {name: options.get(name, getattr(self, name)) for name in _SEARCH_OPTIONS}
        return [
            to_document(found.passage, title_key=self.title_key, score_key=self.score_key, score=found.score)
            for found in self.engine.search(query, **chosen)
        ]


def _split(cls: type[SiDRRetriever], options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are the retriever's attributes, checked before anything is indexed, and the engine's."""
    own = {name: value for name, value in options.items() if name in cls.model_fields and name != "engine"}
    draft = cls.model_construct()
    for name, value in own.items():
        setattr(draft, name, value)
    return own, {name: value for name, value in options.items() if name not in own}
