"""SiDRRetriever: the engine as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.retrievers.sidr.filters import engine_filter
from llama_index.retrievers.sidr.nodes import ref_doc_id as ref_doc_id_of
from llama_index.retrievers.sidr.nodes import to_node, to_passages
from typing_extensions import Self

from sidr_rag import InvalidTypeError, SiDR
from sidr_rag.inputs import as_count
from sidr_rag.pipeline import Request

_CONSTRUCTOR_OPTIONS = ("callback_manager", "objects", "object_map", "verbose")
_SEARCH_OPTIONS: dict[str, Any] = {
    "min_score": None,
    "reranker": None,
    "first_stage": "sidr",
    "query_repr": "theta",
    "max_active_dims": None,
}
_PASSAGES_AT_ONCE = 1_000


class SiDRRetriever(BaseRetriever):
    """Finds the nodes that share tokens with a question's learned sparse vector.

    Made by `from_defaults` or `from_persist_dir`, or around an engine. The text that is indexed is
    `node.get_content(MetadataMode.EMBED)`; the nodes that are returned are those that were given, without embeddings.

    Attributes:
        engine: the `sidr_rag.SiDR` that does the work.
        similarity_top_k: how many nodes; fewer are returned where fewer match, none for 0.
        rerank: order the best m candidates by the second stage; 0 leaves them as the first stage has them.
        search: "beta" (the bag-of-tokens index), "full" or "alpha".
        filters: on metadata, applied before the cut to `similarity_top_k`.
    """

    def __init__(
        self,
        engine: SiDR,
        *,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        rerank: int = 0,
        search: str = "beta",
        filters: MetadataFilters | None = None,
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
            rerank: how many candidates the second stage orders.
            search: "beta", "full" or "alpha".
            filters: on metadata.
            callback_manager: LlamaIndex's.
            objects: nodes whose objects a found `IndexNode` leads on to.
            object_map: the same, by index id.
            verbose: whether to print when a search leads on to an object.
            options: `min_score`, `reranker`, `first_stage`, `query_repr`, `max_active_dims` of `SiDR.search`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        Request.of(**_search_arguments(similarity_top_k, rerank, search, filters, options))
        self.engine = engine
        self.similarity_top_k = similarity_top_k
        self.rerank = rerank
        self.search = search
        self.filters = filters
        self._options = options
        known = {**(object_map or {}), **{node.index_id: node.obj for node in objects or ()}}
        super().__init__(callback_manager=callback_manager, object_map=known, verbose=verbose)

    @classmethod
    def from_defaults(
        cls,
        nodes: Iterable[BaseNode] | None = None,
        *,
        path: str | Path | None = None,
        overwrite: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = "default",
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        rerank: int = 0,
        search: str = "beta",
        filters: MetadataFilters | None = None,
        **options: Any,
    ) -> Self:
        """Index nodes; they can be searched when this returns.

        Args:
            nodes: what to index, consumed once; none gives an empty retriever.
            path: a folder to keep the store in; None keeps it in memory.
            overwrite: whether an existing store at `path` may be replaced.
            model: "default" (bundled), a folder, or a name on the model hub (needs `sidr-rag[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: "default", "binary" (the paper's), or a `sidr_rag.Weighting`.
            similarity_top_k: how many nodes a search returns.
            rerank: how many candidates the second stage orders.
            search: "beta", "full" or "alpha".
            filters: on metadata.
            options: further arguments of the constructor, and options of `SiDR.from_texts` such as `num_threads`.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False.
        """
        own, rest = _split(options)
        chosen = {name: value for name, value in own.items() if name in _SEARCH_OPTIONS}
        Request.of(**_search_arguments(similarity_top_k, rerank, search, filters, chosen))
        found: dict[str, Any] = {}
        engine = SiDR.from_passages(
            to_passages(() if nodes is None else nodes, found),
            path=path,
            overwrite=overwrite,
            model=model,
            device=device,
            weighting=weighting,
            **rest,
        )
        retriever = cls(engine, similarity_top_k=similarity_top_k, rerank=rerank, search=search, filters=filters, **own)
        retriever.object_map.update(found)
        return retriever

    @classmethod
    def from_persist_dir(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: Any = None,
        **options: Any,
    ) -> Self:
        """Open what `persist`, or `from_defaults` with a path, has written.

        The retriever's own arguments (`similarity_top_k`, `rerank` and so on) are not part of a store: give them in
        `options`.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        names = ("similarity_top_k", "rerank", "search", "filters")
        own, rest = _split(options, *names)
        engine = SiDR.open(path, read_only=read_only, model=model, device=device, weighting=weighting, **rest)
        try:
            return cls(engine, **own)
        except BaseException:
            engine.close()
            raise

    # Changing

    def insert_nodes(self, nodes: Iterable[BaseNode]) -> list[str]:
        """Add nodes, all or none; a node whose id exists replaces the old one. Returns the id of each.

        Raises:
            InvalidInputError, InvalidTypeError: naming the node.
        """
        found: dict[str, Any] = {}
        ids = self.engine.add_passages(to_passages(nodes, found))
        self.object_map.update(found)
        return ids

    def delete_nodes(self, node_ids: Iterable[str]) -> int:
        """Delete nodes, all or none; unknown ids are ignored. Returns how many existed."""
        return self.engine.delete(node_ids)

    def delete_ref_doc(self, ref_doc_id: str) -> int:
        """Delete all nodes of a source document. Returns how many there were; reads every passage to find them.

        Raises:
            InvalidTypeError: if `ref_doc_id` is no string.
        """
        if not isinstance(ref_doc_id, str):
            raise InvalidTypeError(f"ref_doc_id is a {type(ref_doc_id).__name__}; ids are strings")
        return self.engine.delete(list(self._node_ids_of(ref_doc_id)))

    async def ainsert_nodes(self, nodes: Iterable[BaseNode]) -> list[str]:
        """`insert_nodes` in a thread."""
        return await asyncio.to_thread(self.insert_nodes, nodes)

    async def adelete_nodes(self, node_ids: Iterable[str]) -> int:
        """`delete_nodes` in a thread."""
        return await asyncio.to_thread(self.delete_nodes, node_ids)

    async def adelete_ref_doc(self, ref_doc_id: str) -> int:
        """`delete_ref_doc` in a thread."""
        return await asyncio.to_thread(self.delete_ref_doc, ref_doc_id)

    # Looking and keeping

    def get_nodes(self, node_ids: Iterable[str]) -> list[BaseNode]:
        """Nodes by id, in the order asked for; missing ids are left out."""
        return [to_node(passage) for passage in self.engine.get(node_ids)]

    def persist(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a folder, for `from_persist_dir`."""
        self.engine.save(path)

    def close(self) -> None:
        """Release the store's folder and threads."""
        self.engine.close()

    # Searching

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        arguments = _search_arguments(self.similarity_top_k, self.rerank, self.search, self.filters, self._options)
        results = self.engine.search(query_bundle.query_str, **arguments)
        return [NodeWithScore(node=to_node(found.passage), score=found.score) for found in results]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _node_ids_of(self, ref_doc_id: str) -> Iterator[str]:
        ids = self.engine.ids()
        for start in range(0, len(ids), _PASSAGES_AT_ONCE):
            for passage in self.engine.get(ids[start : start + _PASSAGES_AT_ONCE]):
                if ref_doc_id_of(passage) == ref_doc_id:
                    yield passage.id


def _split(options: dict[str, Any], *names: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are the constructor's, `names` among them, and the engine's."""
    wanted = {*_CONSTRUCTOR_OPTIONS, *_SEARCH_OPTIONS, *names}
    own = {name: value for name, value in options.items() if name in wanted}
    return own, {name: value for name, value in options.items() if name not in own}


def _search_arguments(
    similarity_top_k: int, rerank: int, search: str, filters: MetadataFilters | None, options: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of `SiDR.search`."""
    unknown = sorted(set(options) - set(_SEARCH_OPTIONS))
    if unknown:
        raise InvalidTypeError(
            f"unknown options {', '.join(map(repr, unknown))}; known are {', '.join(_SEARCH_OPTIONS)}"
        )
    arguments = {
        "k": as_count("similarity_top_k", similarity_top_k),
        "rerank": rerank,
        "search": search,
        "filter": engine_filter(filters),
    }
    return {**_SEARCH_OPTIONS, **arguments, **options}
