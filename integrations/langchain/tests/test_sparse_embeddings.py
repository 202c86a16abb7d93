"""SiDR's two sides in other stores: they rank as binary beta search does."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_milvus import Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from langchain_qdrant import QdrantVectorStore, RetrievalMode, SparseEmbeddings
from langchain_sidr import SiDRMilvusEmbeddings, SiDRRetriever, SiDRSparseEmbeddings
from qdrant_client import QdrantClient, models

from sidr_rag import InvalidInputError, ModelNotFoundError

ROOT = Path(__file__).resolve().parents[3]
TEXTS = [
    "Copper conducts electricity.",
    "A wire of copper carries the current.",
    "Falcons hunt by day.",
    "The heart pumps blood through the body.",
    "Rivers carry stones to the sea.",
    "",
]
IDS = [f"00000000-0000-0000-0000-{i:012d}" for i in range(len(TEXTS))]
QUESTIONS = ["Which metal conducts?", "What moves blood?", "copper wire", "birds that hunt"]


@pytest.fixture(scope="module")
def binary() -> SiDRRetriever:
    return SiDRRetriever.from_texts(TEXTS, ids=IDS, k=len(TEXTS), weighting="binary")


@pytest.fixture(scope="module")
def embeddings(binary: SiDRRetriever) -> SiDRSparseEmbeddings:
    return SiDRSparseEmbeddings(binary.engine.encoder)


@pytest.fixture
def qdrant(embeddings: SiDRSparseEmbeddings) -> QdrantVectorStore:
    client = QdrantClient(":memory:")
    client.create_collection("bags", vectors_config={}, sparse_vectors_config={"sidr": models.SparseVectorParams()})
    store = QdrantVectorStore(
        client,
        "bags",
        sparse_embedding=embeddings,
        retrieval_mode=RetrievalMode.SPARSE,
        sparse_vector_name="sidr",
    )
    store.add_documents(
        [Document(text, id=i, metadata={"n": n}) for n, (text, i) in enumerate(zip(TEXTS, IDS, strict=True))]
    )
    return store


def check_same_ranking(found: list[tuple[Any, float]], expected: list[Document]) -> None:
    """Equal scores in equal order; documents of equal scores may change places."""
    scores = [document.metadata["sidr_score"] for document in expected]
    assert [score for _, score in found[: len(expected)]] == pytest.approx(scores, rel=1e-5)
    assert {d.id: s for d, s in found[: len(expected)]} == pytest.approx(
        {d.id: s for d, s in zip(expected, scores, strict=True)}, rel=1e-5
    )
    assert all(score == 0 for _, score in found[len(expected) :])


def test_documents_are_bags_and_questions_are_encoded(embeddings: SiDRSparseEmbeddings, binary: SiDRRetriever) -> None:
    assert isinstance(embeddings, SparseEmbeddings)
    vectors = embeddings.embed_documents(TEXTS[:1])
    dims, _ = binary.engine.bags(TEXTS[:1]).row(0)
    assert vectors[0].indices == dims.tolist()
    assert vectors[0].values == [1.0] * len(dims)
    query = embeddings.embed_query(QUESTIONS[0])
    dims, weights = binary.engine.encoder.encode_binary_queries(QUESTIONS[:1]).row(0)
    assert query.indices == dims.tolist()
    assert np.array_equal(np.array(query.values, dtype=np.float32), weights)
    assert embeddings.embed_documents([]) == []
    assert embeddings.embed_query("").indices == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_qdrant_ranks_as_binary_beta_search(qdrant: QdrantVectorStore, binary: SiDRRetriever, question: str) -> None:
    found = qdrant.similarity_search_with_score(question, k=len(TEXTS))
    found = [(Document(d.page_content, id=d.metadata["_id"]), score) for d, score in found]
    check_same_ranking(found, binary.invoke(question))


def test_qdrant_with_changes_and_filters(qdrant: QdrantVectorStore) -> None:
    fresh = "00000000-0000-0000-0000-0000000000ff"
    qdrant.add_texts(["The Lunar Gardening Society elected its treasurer."], ids=[fresh])
    assert qdrant.similarity_search("Who is the treasurer?", k=1)[0].metadata["_id"] == fresh
    qdrant.delete([fresh])
    assert fresh not in [d.metadata["_id"] for d in qdrant.similarity_search("Who is the treasurer?", k=9)]
    only = models.Filter(must=[models.FieldCondition(key="metadata.n", match=models.MatchValue(value=1))])
    assert [d.metadata["n"] for d in qdrant.similarity_search("copper", k=3, filter=only)] == [1]


async def test_qdrant_async(qdrant: QdrantVectorStore) -> None:
    found = await qdrant.asimilarity_search(QUESTIONS[0], k=2)
    assert found == qdrant.similarity_search(QUESTIONS[0], k=2)


def test_options_of_the_question(binary: SiDRRetriever) -> None:
    encoder = binary.engine.encoder
    assert SiDRSparseEmbeddings(encoder, query_repr="bot").embed_query("copper wire").values == [1.0, 1.0]
    assert len(SiDRSparseEmbeddings(encoder, max_active_dims=5, query_repr="theta").embed_query("copper").indices) <= 8
    with pytest.raises(InvalidInputError, match="representation"):
        SiDRSparseEmbeddings(encoder, query_repr="dense")
    with pytest.raises(ModelNotFoundError, match="no folder"):
        SiDRSparseEmbeddings("./nowhere")


def test_milvus_vectors_are_the_same(embeddings: SiDRSparseEmbeddings, binary: SiDRRetriever) -> None:
    milvus = SiDRMilvusEmbeddings(binary.engine.encoder)
    assert isinstance(milvus, BaseSparseEmbedding)
    assert Milvus._is_sparse_embedding(milvus)
    for mine, other in zip(milvus.embed_documents(TEXTS), embeddings.embed_documents(TEXTS), strict=True):
        assert mine == dict(zip(other.indices, other.values, strict=True))
    query = embeddings.embed_query(QUESTIONS[0])
    assert milvus.embed_query(QUESTIONS[0]) == dict(zip(query.indices, query.values, strict=True))


def test_milvus_ranks_as_binary_beta_search(binary: SiDRRetriever, tmp_path: Path) -> None:
    store = Milvus(
        SiDRMilvusEmbeddings(binary.engine.encoder),
        connection_args={"uri": str(tmp_path / "milvus.db")},
        vector_field="sparse",
        # Without these, langchain-milvus has Milvus drop the smallest weights.
        index_params={"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP", "params": {"drop_ratio_build": 0.0}},
        search_params={"metric_type": "IP", "params": {}},
        auto_id=False,
    )
    kept = [i for i, text in enumerate(TEXTS) if text]
    store.add_texts([TEXTS[i] for i in kept], ids=[IDS[i] for i in kept])
    for question in QUESTIONS:
        found = store.similarity_search_with_score(question, k=len(TEXTS))
        found = [(Document(d.page_content, id=d.metadata["pk"]), score) for d, score in found]
        check_same_ranking(found, binary.invoke(question))


@pytest.mark.parametrize("kind", [SiDRSparseEmbeddings, SiDRMilvusEmbeddings])
async def test_the_loop_is_never_blocked(
    kind: Any, slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
) -> None:
    retriever = SiDRRetriever.from_texts(TEXTS)
    embeddings = kind(retriever.engine.encoder)
    expected = embeddings.embed_query("copper")
    slow_encoder(retriever.engine, ["copper"], 0.3)
    for query, documents in await never_blocked(
        lambda: asyncio.gather(embeddings.aembed_query("copper"), embeddings.aembed_documents(TEXTS))
    ):
        assert query == expected
        assert documents == embeddings.embed_documents(TEXTS)


@pytest.mark.parametrize("kind", [SiDRSparseEmbeddings, SiDRMilvusEmbeddings])
def test_pickled(kind: Any) -> None:
    embeddings = kind(max_active_dims=20)
    copy = pickle.loads(pickle.dumps(embeddings))
    assert copy.embed_query("copper wire") == embeddings.embed_query("copper wire")


@pytest.mark.parametrize(
    ("name", "package"), [("SiDRSparseEmbeddings", "langchain_qdrant"), ("SiDRMilvusEmbeddings", "langchain_milvus")]
)
def test_without_the_other_package_the_error_names_the_extra(name: str, package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
import langchain_sidr
assert not any(m.startswith(("qdrant_client", "pymilvus")) for m in sys.modules)
try:
    langchain_sidr.{name}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"pip install 'langchain-sidr[{package.removeprefix('langchain_')}]'" in done.stdout
