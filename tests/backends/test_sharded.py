"""Several local stores as one."""

import sys

import pytest

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, SiDR
from sidr_rag.backends import ShardedSiDR, open_backend

conftest = sys.modules[next(name for name in sys.modules if name.endswith("backends.conftest"))]
LEVELLED, mirror, open_on = conftest.LEVELLED, conftest.mirror, conftest.open_on
TEXTS = ["refunds are late", "late parcels", "gift cards", "late late gift", "parcel office", "refund office"]


@pytest.fixture
def sharded(tokenizer, tmp_path):
    sidr = open_on("sharded", tmp_path, tokenizer, weighting=LEVELLED)
    yield sidr
    sidr.close()


def test_new_passages_go_where_the_fewest_are_and_replaced_ones_stay(sharded):
    for i in range(0, 6, 2):
        sharded.add(TEXTS[i : i + 2], ids=[str(i), str(i + 1)])
    assert sharded.info()["passages_of_shards"] == [2, 2, 2]
    sharded.add(["other words", "new words"], ids=["3", "9"])
    assert sharded.info()["passages_of_shards"] == [3, 2, 2]
    assert sharded.ids() == ["0", "1", "9", "2", "3", "4", "5"]


def test_full_search_and_embeddings_are_one_stores(sharded, tokenizer):
    for text in TEXTS:
        sharded.add([text], ids=[text])
    local = mirror(sharded, tokenizer, LEVELLED)
    assert sharded.embed() == 6
    for search in ("full", "alpha", "auto"):
        assert sharded.search("late gift", search=search, k=4) == local.search("late gift", search=search, k=4)


def test_another_process_adds_to_a_shard(tokenizer, tmp_path):
    writer = open_on("sharded", tmp_path, tokenizer)
    writer.add(TEXTS[:3], ids=["a", "b", "c"])
    stores = [conftest.Store.open(tmp_path / f"shard-{i}", tokenizer, read_only=True) for i in range(3)]
    reader = ShardedSiDR.of(stores, conftest.stubs.StubEncoder(tokenizer), conftest.BINARY)
    writer.add(TEXTS[3:], ids=["d", "e", "f"])
    assert sorted(r.passage.id for r in reader.search("late", k=9)) == ["a", "b", "d"]
    assert reader.refresh() == 6
    reader.close()
    writer.close()


def test_a_copy_of_all_shards_is_one_store(sharded, tokenizer, tmp_path):
    for text in TEXTS:
        sharded.add([text], ids=[text])
    sharded.delete([TEXTS[1]])
    sharded.save(tmp_path / "one")
    with conftest.stubs.stub_sidr(tokenizer, tmp_path / "one") as one:
        assert one.ids() == sharded.ids()
        assert [r.passage for r in one.search("late")] == [r.passage for r in mirror(sharded, tokenizer).search("late")]


def test_one_id_in_two_shards_is_told(tokenizer, tmp_path):
    for i in range(2):
        with open_on("local", tmp_path / str(i), tokenizer) as store:
            store.add(["text"], ids=["same"])
    stores = [conftest.Store.open(tmp_path / str(i) / "store", tokenizer) for i in range(2)]
    with ShardedSiDR.of(stores, conftest.stubs.StubEncoder(tokenizer), conftest.BINARY) as sidr:
        with pytest.raises(IndexFormatError, match=r"shards\[0\] and shards\[1\].*'same'"):
            sidr.check_ids()
        assert sidr.delete(["same"]) == 2


def test_stores_that_do_not_fit(tokenizer, tmp_path):
    first = conftest.Store.in_memory(conftest.stubs.stub_settings(tokenizer, (1, 2, 4)), tokenizer)
    second = conftest.Store.in_memory(conftest.stubs.stub_settings(tokenizer, (1,)), tokenizer)
    encoder = conftest.stubs.StubEncoder(tokenizer)
    with pytest.raises(InvalidInputError, match=r"shards\[1\] keeps other levels"):
        ShardedSiDR.of([first, second], encoder, conftest.BINARY)
    with pytest.raises(InvalidInputError, match="at least one"):
        open_backend([])
    with pytest.raises(InvalidTypeError, match="list of folders"):
        ShardedSiDR.open_all(str(tmp_path))


def test_a_list_of_folders_is_opened_as_one(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    with open_backend(paths, create=True) as sidr:
        assert isinstance(sidr, SiDR)
        sidr.add(TEXTS[:3])
        sidr.add(TEXTS[3:])
    with open_backend(paths, read_only=True) as sidr:
        assert (len(sidr), sidr.info()["passages_of_shards"]) == (6, [3, 3])
