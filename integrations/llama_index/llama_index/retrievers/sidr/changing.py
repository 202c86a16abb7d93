"""The methods that change a retriever's nodes, and those that fetch them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import BaseNode, Document, TransformComponent
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.retrievers.sidr.nodes import to_passages
from llama_index.retrievers.sidr.storing import (
    FilesMixin,
    delete_documents,
    delete_found,
    find_nodes,
    refresh_documents,
    refresh_nodes,
)

from sidr_rag import InvalidInputError, SiDR

if TYPE_CHECKING:
    from sidr_rag.index.replace import Replaced


class NodesMixin(FilesMixin):
    """Nodes into `self.engine` and out of it; the async methods do the same in a worker thread."""

    if TYPE_CHECKING:
        engine: SiDR
        object_map: dict[str, Any]

    def insert_nodes(self, nodes: Iterable[BaseNode]) -> list[str]:
        """Add nodes, all or none; a node whose id exists replaces the old one. Returns the id of each.

        Raises:
            InvalidInputError, InvalidTypeError: naming the node.
        """
        found: dict[str, Any] = {}
        ids = self.engine.add_passages(to_passages(nodes, found))
        self.object_map.update(found)
        return ids

    def delete_nodes(
        self, node_ids: Iterable[str] | None = None, filters: MetadataFilters | Mapping[str, Any] | None = None
    ) -> int:
        """Delete nodes by id, by filter, or what both name, all or none. Returns how many existed.

        Raises:
            InvalidInputError: if neither is given.
        """
        if node_ids is None and filters is None:
            raise InvalidInputError("node_ids=None: give the ids to delete, such as engine.ids() for all, or filters")
        return delete_found(self.engine, node_ids, filters)

    def delete_ref_doc(self, ref_doc_id: str) -> int:
        """Delete all nodes of a source document, in one commit. Returns how many there were.

        Raises:
            InvalidTypeError: if `ref_doc_id` is no string.
        """
        return delete_documents(self.engine, [ref_doc_id])

    def refresh_nodes(self, nodes: Iterable[BaseNode]) -> Replaced:
        """Put nodes in the place of all that their source documents had before, in one commit.

        Returns:
            `written` and `removed` ids, and how many nodes are `unchanged`. A splitter gives a node a new id each time
            unless it has an `id_func`, and a node with a new id is a new one; `refresh_ref_docs` compares documents.

        Raises:
            InvalidInputError, InvalidTypeError: naming the node; nothing is then changed.
        """
        found: dict[str, Any] = {}
        done = refresh_nodes(self.engine, nodes, found)
        self.object_map.update(found)
        return done

    def refresh_ref_docs(
        self, documents: Sequence[Document], transformations: Sequence[TransformComponent] | None = None
    ) -> list[bool]:
        """Split and store those documents that are new or have changed, in place of their old nodes, in one commit.

        Args:
            documents: told apart by id and compared by hash (text and metadata).
            transformations: what makes nodes of them; None for `Settings.transformations`.

        Returns:
            For each document, whether it was new or changed.

        Raises:
            InvalidTypeError: if one is no `Document`; nothing is then changed.
        """
        found: dict[str, Any] = {}
        changed = refresh_documents(self.engine, documents, transformations, found)
        self.object_map.update(found)
        return changed

    async def ainsert_nodes(self, nodes: Iterable[BaseNode]) -> list[str]:
        """`insert_nodes` in a thread."""
        return await asyncio.to_thread(self.insert_nodes, nodes)

    async def adelete_nodes(
        self, node_ids: Iterable[str] | None = None, filters: MetadataFilters | Mapping[str, Any] | None = None
    ) -> int:
        """`delete_nodes` in a thread."""
        return await asyncio.to_thread(self.delete_nodes, node_ids, filters)

    async def adelete_ref_doc(self, ref_doc_id: str) -> int:
        """`delete_ref_doc` in a thread."""
        return await asyncio.to_thread(self.delete_ref_doc, ref_doc_id)

    async def arefresh_nodes(self, nodes: Iterable[BaseNode]) -> Replaced:
        """`refresh_nodes` in a thread."""
        return await asyncio.to_thread(self.refresh_nodes, nodes)

    async def arefresh_ref_docs(
        self, documents: Sequence[Document], transformations: Sequence[TransformComponent] | None = None
    ) -> list[bool]:
        """`refresh_ref_docs` in a thread."""
        return await asyncio.to_thread(self.refresh_ref_docs, documents, transformations)

    def get_nodes(
        self, node_ids: Iterable[str] | None = None, filters: MetadataFilters | Mapping[str, Any] | None = None
    ) -> list[BaseNode]:
        """Nodes by id, in the order asked for (missing ids are left out), or by filter, oldest first; or by both."""
        return find_nodes(self.engine, node_ids, filters)
