"""SiDRRetriever: the engine as a LangChain retriever and document index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.indexing import DeleteResponse, UpsertResponse
from langchain_core.indexing.base import DocumentIndex
from langchain_core.retrievers import LangSmithRetrieverParams
from pydantic import ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator
from typing_extensions import Self

from langchain_sidr.documents import document_columns, to_document
from langchain_sidr.options import (
    SEARCH_OPTIONS,
    checked,
    kept_options,
    only_known,
    options_to_keep,
    query_text,
    split_options,
)
from langchain_sidr.reasons import REQUESTS, with_reasons
from langchain_sidr.storing import StoringMixin, in_thread
from sidr_rag import InvalidInputError, SiDR
from sidr_rag.retriever_settings import save_settings, save_with_settings

if TYPE_CHECKING:
    from sidr_rag.files import FileReport, Limits
    from sidr_rag.files.walk import PathLike


class SiDRRetriever(StoringMixin, DocumentIndex):
    """Finds the documents that share tokens with a question's learned sparse vector.

    Made by `from_texts`, `from_documents`, `from_folder` or `open`, or around an engine: `SiDRRetriever(engine=sidr)`.
    Every search option can also be given to one call: `retriever.invoke(question, k=8, filter={"page": {"gt": 3}})`.
    With a folder, the options are kept beside the store when it is made and at `save`, and `open` reads them.

    A returned `Document` has the id and text that were stored, and a copy of the metadata, with the score under
    `score_key`. The score is the re-ranking's for re-ranked documents, else the first stage's.

    It is also a `DocumentIndex`: `langchain_core.indexing.index` keeps it in step with a source of documents.

    Attributes:
        engine: the `sidr_rag.SiDR` that does the work.
        k: how many documents; fewer are returned where fewer match, none for 0.
        rerank: order the best m candidates by the second stage; 0 leaves them as the first stage has them.
        search: "beta" (the bag-of-tokens index), "full", "alpha" or "auto"; see `SiDR.search`.
        filter: on metadata, applied before the cut to k; `sidr_rag.search.filters` gives the syntax.
        min_score: leave out documents whose first-stage score is lower.
        reranker: None (the model's own way), or what else `SiDR.search` takes; an object is not kept.
        first_stage: "sidr", "lexical" (the question's own words, no encoder), "sidr+bm25", or what else `SiDR.search`
            takes; an object is not kept.
        query_repr: "theta", "lex", "bin" or "bot".
        max_active_dims: cut the question's vector to this many dimensions.
        weight_floor: leave out the question's dimensions that weigh less than this share, 0 to 1, of the greatest one.
        score_key: the metadata key of the score in found documents; it replaces a stored one there. None: no score.
        id_key: the metadata key of the id in found documents, for what joins by metadata; it replaces a stored one
            there. None: the id is in `Document.id` alone.
        title_key: the metadata key of a passage's title in returned documents that have no such key. None: no title.
        explain: whether found documents have the parts of their first-stage score by token in their metadata, under
            "sidr_explanation": `Explanation.to_dict()`. It is an error for a first stage that has no such parts.
        costs: whether they have what the search cost, under "sidr_costs": `Costs.to_dict()`.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_assignment=True)

    engine: SiDR = Field(repr=False, exclude=True)
    k: int = 4
    rerank: int = 0
    search: Literal["beta", "full", "alpha", "auto"] = "beta"
    filter: dict[Any, Any] | None = None
    min_score: float | None = None
    reranker: Any = None
    first_stage: Any = "sidr"
    query_repr: Literal["theta", "lex", "bin", "bot"] = "theta"
    max_active_dims: int | None = None
    weight_floor: float = 0.0
    score_key: str | None = "sidr_score"
    id_key: str | None = None
    title_key: str | None = "title"
    explain: bool = False
    costs: bool = False
    _file_report: FileReport | None = PrivateAttr(default=None)

    @field_validator(*SEARCH_OPTIONS, *REQUESTS, mode="before")
    @classmethod
    def _check_option(cls, value: Any, info: ValidationInfo) -> Any:
        # By the engine and before pydantic, which would take "5" and True for numbers.
        return checked(str(info.field_name), value)

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
            path: a folder to keep the store in, with the retriever's options; None keeps it in memory.
            overwrite: whether an existing store at `path` may be replaced.
            model: "default" (bundled), a folder, or a name on the model hub (needs `sidr-rag[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: "default", "binary" (the paper's), or a `sidr_rag.Weighting`.
            k: how many documents a search returns.
            rerank: how many candidates the second stage orders.
            search: "beta", "full", "alpha" or "auto".
            filter: on metadata, for every search.
            options: further attributes of the retriever, and options of `SiDR.from_texts` such as `num_threads`.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False.
        """
        own, rest = split_options(cls, {"k": k, "rerank": rerank, "search": search, "filter": filter, **options})
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
        return cls(engine=engine, **own)._kept()

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
        folder: PathLike | Iterable[PathLike],
        *,
        max_tokens: int = 160,
        overlap: int = 0,
        limits: Limits | None = None,
        on_file: Callable[[str, int], None] | None = None,
        **options: Any,
    ) -> Self:
        """Read the files of one or more folders (or single files), split them and index the pieces.

        What cannot be read is left out and listed in `file_report`; see `sidr_rag.files.read_passages` for ids and
        metadata. `sync_folder` brings the store up to date later.

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
        from sidr_rag.uploads import from_folder

        own, rest = split_options(cls, options)
        engine, report = from_folder(
            folder, max_tokens=max_tokens, overlap=overlap, limits=limits, on_file=on_file, **rest
        )
        retriever = cls(engine=engine, **own)
        retriever._file_report = report
        return retriever._kept()

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
        """Open the store in a folder, as `SiDR.open` does, with the retriever's options that are kept there.

        `options` given here go before those; what neither gives has its default. Objects as `reranker` or `first_stage`
        are never kept.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, was made with another tokenizer or format, or the
                kept options cannot be used; the message names the file.
        """
        own, rest = split_options(cls, options)
        kept = kept_options(cls, Path(path))
        engine = SiDR.open(
            path, create=create, read_only=read_only, model=model, device=device, weighting=weighting, **rest
        )
        retriever = cls(engine=engine, **{**kept, **own})
        return retriever._kept() if create and not read_only and not kept else retriever

    @classmethod
    async def afrom_texts(cls, texts: Iterable[str], *arguments: Any, **options: Any) -> Self:
        """`from_texts` in a thread."""
        return await in_thread(cls.from_texts, texts, *arguments, **options)

    @classmethod
    async def afrom_documents(cls, documents: Iterable[Document], **options: Any) -> Self:
        """`from_documents` in a thread."""
        return await in_thread(cls.from_documents, documents, **options)

    @classmethod
    async def afrom_folder(cls, folder: PathLike | Iterable[PathLike], **options: Any) -> Self:
        """`from_folder` in a thread."""
        return await in_thread(cls.from_folder, folder, **options)

    @classmethod
    async def aopen(cls, path: str | Path, **options: Any) -> Self:
        """`open` in a thread."""
        return await in_thread(cls.open, path, **options)

    # As a DocumentIndex; more ways to add are in `StoringMixin`

    def upsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """Add documents, all or none, or replace those whose ids exist; see `add_documents`."""
        return UpsertResponse(succeeded=self.add_documents(items, **kwargs), failed=[])

    def delete(self, ids: Iterable[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents, all or none; unknown ids are ignored. `num_deleted` says how many existed.

        Raises:
            InvalidInputError: if no ids are given.
        """
        if ids is None:
            raise InvalidInputError("ids=None: give the ids to delete, such as engine.ids() for all")
        return DeleteResponse(num_deleted=self.engine.delete(ids))

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[Document]:
        """The same as `get_by_ids`."""
        return self.get_by_ids(ids)

    # Keeping

    @property
    def file_report(self) -> FileReport | None:
        """What `from_folder` did with each file; None for a retriever made in another way."""
        return self._file_report

    def save(self, path: str | Path) -> None:
        """Write a consistent copy of the store and the retriever's options to a folder, for `open`."""
        save_with_settings(self.engine, path, options_to_keep(self))

    def _kept(self) -> Self:
        if self.engine.path is not None:
            save_settings(self.engine.path, options_to_keep(self))
        return self

    # Searching

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        return self._found(query, options)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        return await in_thread(self._found, query, options)

    def _found(self, query: str, options: dict[str, Any]) -> list[Document]:
        chosen = {**{name: getattr(self, name) for name in (*SEARCH_OPTIONS, *REQUESTS)}, **only_known(options)}
        asked = {name: checked(name, chosen.pop(name)) for name in REQUESTS}
        found = with_reasons(
            self.engine,
            query,
            lambda: self.engine.search(query_text(query), **chosen),
            lambda result: result.passage.id,
            chosen,
            **asked,
        )
        keys = {"title_key": self.title_key, "id_key": self.id_key, "score_key": self.score_key}
        return [to_document(result.passage, score=result.score, more=more, **keys) for result, more in found]

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        model = str(self.engine.encoder.config.name)
        return LangSmithRetrieverParams(
            **super()._get_ls_params(**kwargs),
            ls_vector_store_provider="sidr-rag",
            ls_embedding_provider="sidr-rag",
            ls_embedding_model=model,
        )
