"""What only a collection of an engine has: statistics kept beside it, writers, recovery, limits, URLs and errors."""

import sys

import numpy as np
import pytest

from sidr_rag import IndexFormatError, InvalidInputError, ReadOnlyError, StorageError, StoreLockedError
from sidr_rag.backends import is_backend, open_backend
from sidr_rag.backends.opening import backend_of, fill_backend
from sidr_rag.backends.records import LengthScale
from sidr_rag.backends.remote import RemoteSiDR
from sidr_rag.backends.remote_store import RemoteStore
from sidr_rag.search.weighting import BINARY, Weighting

conftest = sys.modules[next(name for name in sys.modules if name.endswith("backends.conftest"))]
LEVELLED, mirror, open_on, stubs = conftest.LEVELLED, conftest.mirror, conftest.open_on, conftest.stubs
TEXTS = [f"parcel {'late ' * (i % 5)}number {i} of the gift office" for i in range(40)]


@pytest.fixture
def edge(tokenizer, tmp_path):
    """A function (**options) -> a SiDR on one folder of Qdrant's own engine."""
    opened = []

    def build(folder=tmp_path, **options):
        if opened:
            opened[-1].close()  # the folder is one process's at a time
        opened.append(open_on("qdrant-edge", folder, tokenizer, **options))
        return opened[-1]

    yield build
    opened[-1].close()


def beside(sidr, **options):
    """Another writer on the same collection."""
    return RemoteSiDR(RemoteStore(sidr._remote.backend, sidr._remote.tokenizer, **options), sidr._encoder, LEVELLED)


def same(sidr, tokenizer, queries=("late parcel", "gift")):
    local = mirror(sidr, tokenizer, LEVELLED)
    assert sidr.search(list(queries), k=15) == local.search(list(queries), k=15)
    sums, index = sidr._remote.statistics(), local._store.current()
    np.testing.assert_array_equal(sums.df, index.df)
    assert (sums.passages, sums.length) == (index.n_live, index.total_length)


def test_what_was_cut_off_is_counted_at_the_next_opening(edge, tokenizer, monkeypatch):
    sidr = edge(weighting=LEVELLED)
    sidr.add(TEXTS[:10], ids=[str(i) for i in range(10)])
    backend = sidr._remote.backend
    upsert = backend.upsert

    def half(records):
        upsert(records[: len(records) // 2])
        raise StorageError("the connection is gone")

    monkeypatch.setattr(backend, "upsert", half)
    with pytest.raises(StorageError, match="gone"):
        sidr.add(TEXTS[5:20], ids=[str(i) for i in range(5, 20)])
    monkeypatch.undo()
    again = edge(weighting=LEVELLED)
    assert 10 < len(again) < 20
    same(again, tokenizer)
    again.add(TEXTS[5:20], ids=[str(i) for i in range(5, 20)], on_conflict="skip")
    assert len(again) == 20
    same(again, tokenizer)


def test_a_deletion_that_was_cut_off(edge, tokenizer, monkeypatch):
    sidr = edge(weighting=LEVELLED)
    sidr.add(TEXTS[:10], ids=[str(i) for i in range(10)])

    def refuse(keys):
        raise StorageError("the connection is gone")

    monkeypatch.setattr(sidr._remote.backend, "delete", refuse)
    with pytest.raises(StorageError):
        sidr.delete(["1", "2"])
    monkeypatch.undo()
    sidr.add([TEXTS[11]], ids=["11"])  # the next change of the same object settles it first
    assert len(sidr) == 11
    same(sidr, tokenizer)


def test_two_writers_add_up(edge, tokenizer):
    sidr = edge(weighting=LEVELLED, refresh_seconds=0)
    other = beside(sidr, writer="b", refresh_seconds=0)
    sidr.add(TEXTS[:10], ids=[str(i) for i in range(10)])
    other.add(TEXTS[10:20], ids=[str(i) for i in range(10, 20)])
    other.delete(["3"])
    sidr.add([TEXTS[30]], ids=["12"])
    same(sidr, tokenizer)
    same(other, tokenizer)
    assert sidr.ids() == [str(i) for i in range(20) if i not in (3, 12)] + ["12"]


def test_one_name_is_one_writers(edge):
    sidr = edge(weighting=LEVELLED)
    twin = beside(sidr)
    before = twin._remote.ledger.own
    sidr.add(TEXTS[:2])
    with pytest.raises(StoreLockedError, match="writer='main'"):
        twin._remote.ledger.write(before, before)


def test_statistics_of_others_are_as_old_as_was_asked_for(edge):
    sidr = edge(weighting=LEVELLED, refresh_seconds=3600)
    other = beside(sidr, writer="b")
    sidr.add(TEXTS[:2])
    other.add(TEXTS[2:4])
    assert (sidr._remote.statistics().passages, len(sidr)) == (2, 4)
    assert sidr.refresh() == 4
    assert sidr._remote.statistics().passages == 4


def test_recount_mends_what_another_program_changed(edge, tokenizer):
    sidr = edge(weighting=LEVELLED)
    sidr.add(TEXTS, ids=[str(i) for i in range(40)])
    backend = sidr._remote.backend
    backend.delete([head.key for head in sidr._remote.heads()[:7]])
    assert sidr._remote.statistics().passages == 40
    assert sidr.recount() == 33
    same(sidr, tokenizer)


def test_small_answers_of_an_engine_are_put_together(edge, tokenizer):
    sidr = edge(weighting=LEVELLED)
    sidr.add(["the same words"] * 70, ids=[f"{i:02}" for i in range(70)], metadatas=[{"n": i} for i in range(70)])
    sidr.add(TEXTS)
    sidr._remote.backend.most_candidates = 16
    local = mirror(sidr, tokenizer, LEVELLED)
    for k in (1, 20, 70, 500):
        assert sidr.search("same words of the office", k=k) == local.search("same words of the office", k=k)
    assert [r.passage.id for r in sidr.search("words", k=3, filter={"n": {"nin": list(range(66))}})] == [
        "66",
        "67",
        "68",
    ]


def test_another_weighting_than_the_vectors_carry_is_exact_too(edge, tokenizer):
    sidr = edge(weighting=LEVELLED)
    sidr.add(TEXTS)
    plain = RemoteSiDR(sidr._remote, sidr._encoder, BINARY)
    assert plain.search("late gift", k=9) == mirror(sidr, tokenizer, BINARY).search("late gift", k=9)
    long = Weighting((1, 2), (1.0, 2.0), 0.0, 2.0, 0.9, None)
    other = RemoteSiDR(sidr._remote, sidr._encoder, long)
    assert other.search("late gift", k=9) == mirror(sidr, tokenizer, long).search("late gift", k=9)


def test_qdrants_optimized_index_is_as_exact(tokenizer, real_passages, real_queries, tmp_path):
    pytest.importorskip("qdrant_edge")
    sidr = open_on("qdrant-edge", tmp_path, tokenizer, weighting=LEVELLED)
    sidr.add_passages(real_passages)
    sidr._remote.backend.optimize()
    local = mirror(sidr, tokenizer, LEVELLED)
    assert sidr.search(real_queries, k=10) == local.search(real_queries, k=10)
    sidr.close()


@pytest.mark.parametrize(("exponent", "slope"), [(0.5, 0.4), (1.0, 0.75), (2.0, 1.0), (0.0, 0.0)])
def test_the_bound_on_a_length_factor_holds(exponent, slope):
    scale = LengthScale(0.5, 0.4, 90.0)
    lengths = np.unique(np.geomspace(1, 5000, 400).astype(np.uint32))
    for average in (20.0, 90.0, 300.0):
        weighting = Weighting((1,), (1.0,), 0.0, exponent, slope, None)
        factors = (1 - slope + slope * (lengths / average)) ** -exponent
        ratios = factors / scale.values(lengths)
        most = scale.most_over(weighting, average, 5000)
        assert ratios.max() <= most * (1 + 1e-6)
        assert most <= ratios.max() * 1.01


def test_progress_and_limits(edge):
    told = []
    sidr = edge(progress=told.append)
    sidr.add((f"text {i}" for i in range(2500)), ids=(str(i) for i in range(2500)))
    assert told == [1000, 2000, 2500]
    assert len(sidr) == 2500
    for search in ("full", "alpha"):
        with pytest.raises(InvalidInputError, match="rerank=100"):
            sidr.search("text", search=search)
    with pytest.raises(InvalidInputError, match="embed"):
        sidr.embed()
    with pytest.raises(InvalidInputError, match="bm25"):
        sidr.search("text", first_stage="bm25")
    found = sidr.search("text 7", k=3, first_stage="sidr+lexical")
    assert len(found) == 3
    assert all(r.reranked for r in sidr.search("text 7", k=3, search="auto"))


def test_a_milvus_field_has_a_size(tokenizer, tmp_path):
    sidr = open_on("milvus", tmp_path, tokenizer)
    with pytest.raises(InvalidInputError, match=r"'big': its text takes 70,000 bytes") as caught:
        sidr.add(["x" * 70_000], ids=["big"])
    assert "xxx" not in str(caught.value)
    sidr.add(["a small one"], ids=["small"])
    assert sidr.ids() == ["small"]
    assert sidr._remote.statistics().passages == 1
    sidr.close()


def test_reading_alone_changes_nothing(edge):
    edge().add(["a text"])
    reader = edge(read_only=True)
    with pytest.raises(ReadOnlyError):
        reader.add(["more"])
    with pytest.raises(ReadOnlyError):
        reader.delete(["x"])
    assert len(reader.search("text", k=2)) == 1


def test_collections_that_are_not_ours_or_of_another_tokenizer(tokenizer, tmp_path):
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    client.create_collection("foreign", vectors_config={})
    with pytest.raises(IndexFormatError, match="is no collection of this library"):
        RemoteStore(backend_of(client, "foreign", {}, {}), tokenizer)
    with pytest.raises(IndexFormatError, match="create=True"):
        open_backend(client, collection="nothing")
    backend = backend_of(client, "ours", {}, {})
    RemoteStore.create(backend, stubs.stub_settings(tokenizer), BINARY)
    with pytest.raises(IndexFormatError, match="tiny-1"):
        RemoteStore(backend, stubs.TinyTokenizer())
    client.close()


def test_the_default_model_through_urls_and_clients(tmp_path):
    qdrant_client = pytest.importorskip("qdrant_client")
    pytest.importorskip("milvus_lite")
    from sidr_rag import SiDR

    texts = ["Refunds are paid within 30 days.", "Parcels arrive in two days.", "Gift cards are valid for five years."]
    local = SiDR.from_texts(texts, ids=["a", "b", "c"])
    client = qdrant_client.QdrantClient(":memory:")
    for place in (client, f"milvus://{tmp_path}/file.db"):
        with fill_backend(place, texts, ids=["a", "b", "c"]) as sidr:
            assert isinstance(sidr, SiDR)
            assert sidr.search("How soon is money returned?", rerank=3) == local.search(
                "How soon is money returned?", rerank=3
            )
        with pytest.raises(IndexFormatError, match="holds passages"):
            fill_backend(place, texts)
        with fill_backend(place, texts[:1], overwrite=True) as sidr:
            assert len(sidr) == 1
    local.close()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("redis://host/x", "no URL"),
        ("qdrant://user:hunter2@host/x", "connection="),
        ("milvus://host/a/b", "host:port/collection"),
        ("qdrant://", "neither a host nor a path"),
    ],
)
def test_urls_that_cannot_be_understood(place, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        backend_of(place, None, {}, {})
    assert "hunter2" not in str(caught.value)


def test_places_for_a_backend():
    assert all(map(is_backend, ["qdrant://h/c", "milvus:///a.db", ["a", "b"], object()]))
    assert not any(map(is_backend, ["folder", "C:\\folder", stubs.DEFAULT_FOLDER, None]))
    with pytest.raises(InvalidInputError, match="QdrantClient"):
        open_backend(object())


def test_an_engine_that_does_not_answer_is_a_storage_error():
    pytest.importorskip("qdrant_client")
    with pytest.raises(StorageError, match="did not answer"):
        open_backend("qdrant://127.0.0.1:9/nothing", connection={"timeout": 1, "check_compatibility": False})


def test_errors_hold_no_text(edge, monkeypatch):
    sidr = edge()
    sidr.add(["a text"])

    class Shard:
        def query(self, request):
            raise RuntimeError("secret words of a passage")

    monkeypatch.setitem(sidr._remote.backend._shards, "passages", Shard())
    with pytest.raises(StorageError) as caught:
        sidr.search("text")
    assert "secret" not in str(caught.value)
    monkeypatch.undo()
