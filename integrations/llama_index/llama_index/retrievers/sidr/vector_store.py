"""SiDRVectorStore: the engine behind the interface of a LlamaIndex vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from llama_index.retrievers.sidr.nodes import to_passages
from llama_index.retrievers.sidr.options import DEFAULTS, kept_options, options_to_keep, search_arguments, split
from llama_index.retrievers.sidr.pipelines import index_of, pipeline_of
from llama_index.retrievers.sidr.queries import run_query
from llama_index.retrievers.sidr.reasons import REQUESTS, checked_requests
from llama_index.retrievers.sidr.storing import FilesMixin, delete_documents, delete_found, find_nodes
from typing_extensions import Self

from sidr_rag import InvalidInputError, InvalidTypeError, SiDR
from sidr_rag.retriever_settings import save_with_settings

if TYPE_CHECKING:
    from llama_index.core.indices import VectorStoreIndex
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.schema import TransformComponent


class SiDRVectorStore(FilesMixin, BasePydanticVectorStore):
    """Nodes found by their tokens, behind the interface of a vector store; no embedding takes part.

    `as_index` and `as_pipeline` put it into an index and an ingestion pipeline without an embedding model. Only nodes
    that match are returned. Modes of a query: "default" and "sparse" search as the options say, "text_search" by the
    question's own words, "hybrid" fuses the ranks of the learned search and BM25 (`alpha` is the learned search's
    share), "mmr" takes nodes that are unlike each other.

    Attributes:
        stores_text: True; nodes come back whole, and an index needs no document store.
        is_embedding_query: False; a query's text is searched for.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    flat_metadata: bool = False

    _engine: SiDR = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(
        self,
        engine: SiDR | None = None,
        *,
        path: str | Path | None = None,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = None,
        **options: Any,
    ) -> None:
        """Wrap an engine, or open or make a store.

        Args:
            engine: a `sidr_rag.SiDR`; None for a store of its own.
            path: the folder of that store, made where there is none; None keeps it in memory.
            model: "default" (bundled), a folder, or a name on the model hub (needs `sidr-rag[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: None (what the store was made with), "default", "binary" or a `sidr_rag.Weighting`.
            options: for every search: `rerank`, `search`, `min_score`, `reranker`, `first_stage`, `query_repr`,
                `max_active_dims`, `weight_floor`; `explain` and `costs`, which put the parts of the first-stage score
                by token, and what the search cost, into the metadata of found nodes, under "sidr_explanation" and
                "sidr_costs"; and options of `SiDR.open` such as `num_threads`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
            IndexFormatError: if the folder holds something else than a store, or one of another tokenizer or format.
        """
        own, rest = split(options, (*DEFAULTS, *REQUESTS))
        search_arguments(1, None, split(own, DEFAULTS)[0])
        checked_requests(own)
        if engine is None and path is None:
            engine = SiDR.from_texts((), model=model, device=device, weighting=weighting or "default", **rest)
        elif engine is None:
            engine = SiDR.open(str(path), create=True, model=model, device=device, weighting=weighting, **rest)
        elif not isinstance(engine, SiDR):
            raise InvalidTypeError(f"engine is a {type(engine).__name__}; give a SiDR, or path= for a folder")
        elif path is not None or rest:
            raise InvalidInputError(f"{next(iter(rest), 'path')} cannot be given with an engine; it has its own")
        super().__init__(stores_text=True, is_embedding_query=False)
        self._engine = engine
        self._options = own

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows the class."""
        return "SiDRVectorStore"

    @property
    def client(self) -> SiDR:
        """The engine, under the name that vector stores give to what they wrap."""
        return self._engine

    @property
    def engine(self) -> SiDR:  # type: ignore[override]
        """The `sidr_rag.SiDR` that does the work; a `SiDRRetriever` over it finds the same nodes."""
        return self._engine

    def as_index(self, **options: Any) -> VectorStoreIndex:
        """An index over this store, for `as_retriever`, `as_query_engine`, `insert` and `refresh_ref_docs`.

        Args:
            options: of `VectorStoreIndex`, such as `transformations`; `nodes` are inserted. For documents:
                `store.as_pipeline().run(documents=documents)`, or `index.insert(document)` for each.
        """
        return index_of(self, options)

    def as_pipeline(
        self, transformations: Sequence[TransformComponent] | None = None, **options: Any
    ) -> IngestionPipeline:
        """An ingestion pipeline that ends in this store.

        A plain `IngestionPipeline` drops every node that has no embedding; this one gives each an empty one at the end.

        Args:
            transformations: what makes nodes of documents; None for `Settings.transformations`.
            options: of `IngestionPipeline`, such as `docstore` and `docstore_strategy`.
        """
        return pipeline_of(self, transformations, options)

    # Changing

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, all or none; a node whose id exists replaces the old one, and embeddings are not kept.

        Raises:
            InvalidInputError, InvalidTypeError: naming the node.
        """
        return self._engine.add_passages(to_passages(nodes, {}))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes of a source document, in one commit; an unknown one is ignored."""
        delete_documents(self._engine, [ref_doc_id])

    def delete_nodes(
        self,
        node_ids: Iterable[str] | None = None,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id, by filter, or what both name, all or none.

        Raises:
            InvalidInputError: if neither is given; `clear` deletes all.
        """
        if node_ids is None and filters is None:
            raise InvalidInputError("node_ids=None: give ids, filters or both; clear() deletes all nodes")
        delete_found(self._engine, node_ids, filters)

    def clear(self) -> None:
        """Delete all nodes."""
        delete_found(self._engine, None, None)

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """`add` in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """`delete` in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self,
        node_ids: Iterable[str] | None = None,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """`delete_nodes` in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """`clear` in a thread."""
        await asyncio.to_thread(self.clear)

    # Looking

    def get_nodes(
        self, node_ids: Iterable[str] | None = None, filters: MetadataFilters | Mapping[str, Any] | None = None
    ) -> list[BaseNode]:
        """Nodes by id, in the order asked for (missing ids are left out), or by filter, oldest first; or by both."""
        return find_nodes(self._engine, node_ids, filters)

    async def aget_nodes(
        self, node_ids: Iterable[str] | None = None, filters: MetadataFilters | Mapping[str, Any] | None = None
    ) -> list[BaseNode]:
        """`get_nodes` in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes that match a query's text, best first, with their scores.

        Args:
            query: `query_str`, `similarity_top_k`, `filters`, `mode`, `alpha`, `doc_ids`, `node_ids` and
                `mmr_threshold` are used; its embedding is not.
            kwargs: search options in place of the store's, as `vector_store_kwargs` of a retriever gives them; for
                "mmr" also `mmr_threshold` (1 for relevance alone, 0 for unlikeness alone) and `mmr_prefetch_factor`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        found = run_query(self._engine, query, self._options, kwargs)
        return VectorStoreQueryResult(
            nodes=[hit.node for hit in found],
            similarities=[hit.get_score() for hit in found],
            ids=[hit.node.node_id for hit in found],
        )

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query` in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    # Keeping

    def persist(self, persist_path: str | Path, fs: Any = None) -> None:
        """Write a consistent copy of the store and its options to a folder, for `from_persist_path`.

        `StorageContext.persist(persist_dir=...)` calls it; then `from_persist_dir` reads it.

        Raises:
            InvalidInputError: for a file system: a store is a folder on a local disk.
        """
        if fs is not None and getattr(fs, "protocol", "") not in ("file", "local", ("file", "local")):
            raise InvalidInputError(f"fs is a {type(fs).__name__}; a store is kept in a local folder")
        Path(persist_path).parent.mkdir(parents=True, exist_ok=True)
        save_with_settings(self._engine, persist_path, options_to_keep(self._options))

    @classmethod
    def from_persist_path(cls, persist_path: str | Path, **options: Any) -> Self:
        """Open what `persist` has written, with the options kept there; what is given here goes before them.

        Args:
            persist_path: the folder.
            options: search options; and of `SiDR.open`, such as `read_only`.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        known = (*DEFAULTS, *REQUESTS)
        own, rest = split(options, known)
        chosen = {**split(kept_options(Path(persist_path)), known)[0], **own}
        search_arguments(1, None, split(chosen, DEFAULTS)[0])
        return cls(SiDR.open(persist_path, **rest), **chosen)

    @classmethod
    def from_persist_dir(cls, persist_dir: str | Path, namespace: str = "default", **options: Any) -> Self:
        """Open what `StorageContext.persist` has written into a folder; `options` as for `from_persist_path`."""
        return cls.from_persist_path(Path(persist_dir) / f"{namespace}__vector_store.json", **options)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pydantic's own way would leave out an engine that cannot be pickled, and say so in a log line only.
        return _again, (self._engine, self._options)


def _again(engine: SiDR, options: dict[str, Any]) -> SiDRVectorStore:
    return SiDRVectorStore(engine, **options)
