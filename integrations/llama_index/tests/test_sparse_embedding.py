"""The two sides of beta search for other stores: they rank as binary beta search does."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base_sparse import BaseSparseEmbedding
from llama_index.core.schema import TextNode
from llama_index.retrievers.sidr import SiDRRetriever, SiDRSparseEmbedding

from sidr_rag import InvalidInputError, ModelNotFoundError

TEXTS = [
    "Copper conducts electricity.",
    "A wire of copper carries the current.",
    "Falcons hunt by day.",
    "The heart pumps blood through the body.",
    "Rivers carry stones to the sea.",
]
IDS = [f"00000000-0000-0000-0000-{i:012d}" for i in range(len(TEXTS))]
QUESTIONS = ["Which metal conducts?", "What moves blood?", "copper wire", "birds that hunt"]


@pytest.fixture(scope="module")
def binary() -> SiDRRetriever:
    nodes = [TextNode(text=text, id_=own) for text, own in zip(TEXTS, IDS, strict=True)]
    return SiDRRetriever.from_defaults(nodes, weighting="binary", similarity_top_k=len(TEXTS))


@pytest.fixture(scope="module")
def embedding(binary: SiDRRetriever) -> SiDRSparseEmbedding:
    return SiDRSparseEmbedding(binary.engine.encoder)


def test_texts_are_bags_and_questions_are_weighed(binary: SiDRRetriever, embedding: SiDRSparseEmbedding) -> None:
    assert isinstance(embedding, BaseSparseEmbedding)
    assert embedding.model_name == binary.engine.encoder.config.name
    for text, bag in zip(TEXTS, embedding.get_text_embedding_batch(TEXTS), strict=True):
        dims, _ = binary.engine.bags([text]).row(0)
        assert bag == dict.fromkeys(dims.tolist(), 1.0)
        assert embedding.get_text_embedding(text) == bag
    dims, weights = binary.engine.encoder.encode_binary_queries(QUESTIONS[:1]).row(0)
    assert embedding.get_query_embedding(QUESTIONS[0]) == dict(zip(dims.tolist(), weights.tolist(), strict=True))
    assert embedding.get_text_embedding("") == {}


def test_the_functions_give_the_same_as_lists(embedding: SiDRSparseEmbedding) -> None:
    for function, single in (
        (embedding.sparse_doc_fn, embedding.get_text_embedding),
        (embedding.sparse_query_fn, embedding.get_query_embedding),
    ):
        indices, values = function(QUESTIONS)
        for question, dims, weights in zip(QUESTIONS, indices, values, strict=True):
            # A text's weights differ in the last bits with those beside it in the batch.
            assert dict(zip(dims, weights, strict=True)) == pytest.approx(single(question), rel=1e-4)
        assert function([]) == ([], [])


def test_inner_products_are_the_scores_of_binary_beta_search(
    binary: SiDRRetriever, embedding: SiDRSparseEmbedding
) -> None:
    bags = embedding.get_text_embedding_batch(TEXTS)
    for question in QUESTIONS:
        weights = embedding.get_query_embedding(question)
        scores = {own: sum(weights.get(dim, 0.0) for dim in bag) for own, bag in zip(IDS, bags, strict=True)}
        for found in binary.retrieve(question):
            assert scores[found.node.node_id] == pytest.approx(found.score, rel=1e-6)


async def test_async_methods_agree_and_never_block(
    binary: SiDRRetriever, slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
) -> None:
    embedding = SiDRSparseEmbedding(binary.engine.encoder)
    assert await embedding.aget_text_embedding(TEXTS[0]) == embedding.get_text_embedding(TEXTS[0])
    assert await embedding.aget_text_embedding_batch(TEXTS) == embedding.get_text_embedding_batch(TEXTS)
    expected = [embedding.get_query_embedding(question) for question in QUESTIONS]
    slow_encoder(binary.engine, QUESTIONS, 0.3)
    for found in await never_blocked(lambda: asyncio.gather(*(embedding.aget_query_embedding(q) for q in QUESTIONS))):
        assert found == expected


def test_options_are_checked_when_made(binary: SiDRRetriever, tmp_path: Any) -> None:
    encoder = binary.engine.encoder
    cut = SiDRSparseEmbedding(encoder, max_active_dims=3)
    whole = SiDRSparseEmbedding(encoder).get_query_embedding(QUESTIONS[0])
    assert len(cut.get_query_embedding(QUESTIONS[0])) < len(whole)
    own_words = SiDRSparseEmbedding(encoder, query_repr="bot")
    assert own_words.get_query_embedding(TEXTS[0]) == own_words.get_text_embedding(TEXTS[0])
    with pytest.raises(InvalidInputError, match="'gamma'"):
        SiDRSparseEmbedding(encoder, query_repr="gamma")
    with pytest.raises(ModelNotFoundError):
        SiDRSparseEmbedding(tmp_path / "absent")


def test_it_can_be_pickled(embedding: SiDRSparseEmbedding) -> None:
    again = pickle.loads(pickle.dumps(embedding))
    assert again.get_query_embedding(QUESTIONS[0]) == embedding.get_query_embedding(QUESTIONS[0])
    assert again.sparse_doc_fn(TEXTS) == embedding.sparse_doc_fn(TEXTS)


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")
def test_qdrant_ranks_as_binary_beta_search(binary: SiDRRetriever, embedding: SiDRSparseEmbedding) -> None:
    qdrant = pytest.importorskip("llama_index.vector_stores.qdrant")
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    store = qdrant.QdrantVectorStore(
        "bags",
        client=client,
        enable_hybrid=True,
        sparse_doc_fn=embedding.sparse_doc_fn,
        sparse_query_fn=embedding.sparse_query_fn,
    )
    index = VectorStoreIndex(
        [TextNode(text=text, id_=own) for text, own in zip(TEXTS, IDS, strict=True)],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=MockEmbedding(embed_dim=2),
    )
    retriever = index.as_retriever(vector_store_query_mode="sparse", sparse_top_k=len(TEXTS), similarity_top_k=5)
    for question in QUESTIONS:
        found, expected = retriever.retrieve(question), binary.retrieve(question)
        assert [f.node.node_id for f in found] == [f.node.node_id for f in expected]
        assert [f.score for f in found] == pytest.approx([f.score for f in expected], rel=1e-5)
    client.close()
