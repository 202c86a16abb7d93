"""SiDRRetriever: the engine as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.indices.base import BaseIndex
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.retrievers.sidr.changing import NodesMixin
from llama_index.retrievers.sidr.filters import Filters
from llama_index.retrievers.sidr.nodes import to_passages
from llama_index.retrievers.sidr.options import DEFAULTS, kept_options, options_to_keep, search_arguments, split
from llama_index.retrievers.sidr.reasons import REQUESTS, checked_requests, found_nodes
from typing_extensions import Self

from sidr_rag import InvalidInputError, InvalidTypeError, SiDR
from sidr_rag.retriever_settings import save_settings, save_with_settings

if TYPE_CHECKING:
    from sidr_rag.files import FileReport, Limits
    from sidr_rag.files.walk import PathLike

_OWN = ("similarity_top_k", "filters", *DEFAULTS, *REQUESTS, "callback_manager", "objects", "object_map", "verbose")


class SiDRRetriever(NodesMixin, BaseRetriever):
    """Finds the nodes that share tokens with a question's learned sparse vector.

    Made by `from_defaults`, `from_folder` or `from_persist_dir`, or around an engine. The text that is indexed is
    `node.get_content(MetadataMode.EMBED)`; the nodes that are returned are those that were given, without embeddings.
    The options are attributes and may be changed at any time. With a folder, they are kept beside the store when it is
    made and at `persist`, and `from_persist_dir` reads them.

    Attributes:
        engine: the `sidr_rag.SiDR` that does the work.
        similarity_top_k: how many nodes; fewer are returned where fewer match, none for 0.
        filters: on metadata, applied before the cut to `similarity_top_k`: `MetadataFilters`, or a mapping in the
            engine's own language.
        rerank: order the best m candidates by the second stage; 0 leaves them as the first stage has them.
        search: "beta" (the bag-of-tokens index), "full", "alpha" or "auto".
        min_score: leave out nodes whose first-stage score is lower.
        reranker: None (the model's own way), or what else `SiDR.search` takes.
        first_stage: "sidr", "lexical" (the question's own words), or what else `SiDR.search` takes.
        query_repr: "theta", "lex", "bin" or "bot".
        max_active_dims: cut the question's vector to this many dimensions.
        weight_floor: leave out the question's dimensions that weigh less than this share, 0 to 1, of the greatest one.
        explain: whether found nodes have the parts of their first-stage score by token in their metadata, under
            "sidr_explanation": `Explanation.to_dict()`. It is an error for a first stage that has no such parts.
        costs: whether they have what the search cost, under "sidr_costs": `Costs.to_dict()`.
        file_report: what `from_folder` did with each file; None for a retriever made in another way.
    """

    engine: SiDR
    similarity_top_k: int
    filters: Filters | None
    rerank: int
    search: str
    min_score: float | None
    reranker: Any
    first_stage: Any
    query_repr: str
    max_active_dims: int | None
    weight_floor: float
    explain: bool
    costs: bool

    def __init__(
        self,
        engine: SiDR,
        *,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        objects: Iterable[IndexNode] | None = None,
        object_map: Mapping[str, Any] | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        """Search an engine.

        Args:
            engine: a `sidr_rag.SiDR`; passages that were not made from nodes are returned as `TextNode`.
            similarity_top_k: how many nodes a search returns.
            filters: on metadata.
            callback_manager: LlamaIndex's.
            objects: nodes whose objects a found `IndexNode` leads on to.
            object_map: the same, by index id.
            verbose: whether to print when a search leads on to an object.
            options: `rerank`, `search`, `min_score`, `reranker`, `first_stage`, `query_repr`, `max_active_dims`,
                `weight_floor`, `explain`, `costs`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        if not isinstance(engine, SiDR):
            raise InvalidTypeError(f"engine is a {type(engine).__name__}; give a SiDR, or use from_defaults(nodes)")
        requests, rest = split(options, REQUESTS)
        search_arguments(similarity_top_k, filters, rest)
        self.engine = engine
        self.similarity_top_k = similarity_top_k
        self.filters = filters
        for name, value in {**DEFAULTS, **rest, **checked_requests(requests)}.items():
            setattr(self, name, value)
        self.file_report: FileReport | None = None
        known = {**(object_map or {}), **{node.index_id: node.obj for node in objects or ()}}
        super().__init__(callback_manager=callback_manager, object_map=known, verbose=verbose)

    # Making

    @classmethod
    def from_defaults(
        cls,
        nodes: Iterable[BaseNode] | None = None,
        *,
        index: BaseIndex[Any] | None = None,
        docstore: BaseDocumentStore | None = None,
        path: str | Path | None = None,
        overwrite: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = "default",
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Index nodes; they can be searched when this returns.

        Args:
            nodes: what to index, consumed once.
            index: in their place, an index that keeps its nodes in its document store.
            docstore: in their place, a document store.
            path: a folder to keep the store in, with the retriever's options; None keeps it in memory.
            overwrite: whether an existing store at `path` may be replaced.
            model: "default" (bundled), a folder, or a name on the model hub (needs `sidr-rag[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: "default", "binary" (the paper's), or a `sidr_rag.Weighting`.
            similarity_top_k: how many nodes a search returns.
            filters: on metadata, for every search.
            options: further arguments of the constructor, and options of `SiDR.from_texts` such as `num_threads`.

        Without nodes, index and docstore the retriever is empty.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False.
        """
        own, rest = _checked(similarity_top_k, filters, options)
        found: dict[str, Any] = {}
        engine = SiDR.from_passages(
            to_passages(_given(nodes, index, docstore), found),
            path=path,
            overwrite=overwrite,
            model=model,
            device=device,
            weighting=weighting,
            **rest,
        )
        return cls._made(engine, own, found)

    @classmethod
    def from_folder(
        cls,
        folder: PathLike | Iterable[PathLike],
        *,
        max_tokens: int = 160,
        overlap: int = 0,
        limits: Limits | None = None,
        on_file: Callable[[str, int], None] | None = None,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Read the files of one or more folders (or single files), split them and index the pieces.

        What cannot be read is left out and listed in `file_report`; see `sidr_rag.files.read_passages` for ids and
        metadata. `sync_folder` brings the store up to date later.

        Args:
            folder: where the files are.
            max_tokens: the most tokens in a node.
            overlap: tokens that neighbouring nodes of a file share.
            limits: bounds on size, pages and time.
            on_file: called with the path and its number of nodes after each file.
            similarity_top_k: how many nodes a search returns.
            filters: on metadata, for every search.
            options: as for `from_defaults`.

        Raises:
            FileReadError: if a path does not exist.
        """
        from sidr_rag.uploads import from_folder

        own, rest = _checked(similarity_top_k, filters, options)
        engine, report = from_folder(
            folder, max_tokens=max_tokens, overlap=overlap, limits=limits, on_file=on_file, **rest
        )
        retriever = cls._made(engine, own, {})
        retriever.file_report = report
        return retriever

    @classmethod
    def from_persist_dir(
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
        """Open what `persist`, or `from_defaults` with a path, has written, with the options that are kept there.

        `options` given here go before those; what neither gives has its default. Objects as `reranker` or
        `first_stage`, and what an `IndexNode` leads on to, are never kept.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, was made with another tokenizer or format, or the
                kept options cannot be used; the message names the file.
        """
        own, rest = split(options, _OWN)
        kept = kept_options(Path(path))
        engine = SiDR.open(
            path, create=create, read_only=read_only, model=model, device=device, weighting=weighting, **rest
        )
        try:
            return cls(engine, **{**kept, **own})
        except BaseException:
            engine.close()
            raise

    @classmethod
    def _made(cls, engine: SiDR, own: Mapping[str, Any], objects: Mapping[str, Any]) -> Self:
        retriever = cls(engine, **own)
        retriever.object_map.update(objects)
        if engine.path is not None:
            save_settings(engine.path, retriever._to_keep())
        return retriever

    # Keeping

    def persist(self, path: str | Path) -> None:
        """Write a consistent copy of the store and the retriever's options to a folder, for `from_persist_dir`."""
        save_with_settings(self.engine, path, self._to_keep())

    def _to_keep(self) -> dict[str, Any]:
        options = {**self._options(), **self._requests()}
        return options_to_keep(options, self.similarity_top_k, self.filters)

    # Searching

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        arguments = search_arguments(self.similarity_top_k, self.filters, self._options())
        query = query_bundle.query_str
        return found_nodes(
            self.engine, query, lambda: self.engine.search(query, **arguments), arguments, **self._requests()
        )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in DEFAULTS}

    def _requests(self) -> dict[str, bool]:
        return checked_requests({name: getattr(self, name) for name in REQUESTS})


def _checked(
    similarity_top_k: int, filters: Filters | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constructor's arguments, checked before anything is indexed, and the engine's options."""
    own, rest = split(options, _OWN)
    search_arguments(similarity_top_k, filters, split(own, DEFAULTS)[0])
    checked_requests(own)
    return {"similarity_top_k": similarity_top_k, "filters": filters, **own}, rest


def _given(
    nodes: Iterable[BaseNode] | None, index: BaseIndex[Any] | None, docstore: BaseDocumentStore | None
) -> Iterable[BaseNode]:
    given = {"nodes": nodes, "index": index, "docstore": docstore}
    several = [name for name, value in given.items() if value is not None]
    if len(several) > 1:
        raise InvalidInputError(f"{' and '.join(several)} are given; give one of nodes, index and docstore")
    if index is not None:
        docstore = index.docstore
        store = getattr(index, "vector_store", None)
        if store is not None and store.stores_text and not docstore.docs:
            raise InvalidInputError(
                f"index keeps its nodes in its {type(store).__name__}, not in its document store; give nodes=, or "
                "for a SiDRVectorStore use SiDRRetriever(index.vector_store.engine)"
            )
    if docstore is not None:
        return list(docstore.docs.values())
    return () if nodes is None else nodes
