import hashlib
import sqlite3
import stat
import threading
import warnings

import numpy as np
import pytest

from sidr_rag.errors import StorageError
from sidr_rag.rerank.cache import EmbeddingCache, content_key
from sidr_rag.rerank.codecs import ByteVectors, ByteWeights, HalfVectors


def vector(seed, n=5):
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(1000, n, replace=False)).astype(np.int32), rng.random(n).astype(np.float16)


def key(i):
    return content_key(f"text {i}")


def same(a, b):
    return a[0].tolist() == b[0].tolist() and a[1].view(np.uint16).tolist() == b[1].view(np.uint16).tolist()


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "embeddings.db"


def test_embeddings_come_back_bit_for_bit(path):
    cache = EmbeddingCache(path, "f")
    cache.put([(key(i), vector(i)) for i in range(1200)])
    cache.put([(key(5000), (np.empty(0, np.int32), np.empty(0, np.float16)))])
    found = cache.get([key(i) for i in range(-5, 1300)] + [key(5000)])
    assert set(found) == {key(i) for i in range(1200)} | {key(5000)}
    assert all(same(found[key(i)], vector(i)) for i in range(1200))
    assert len(found[key(5000)][0]) == 0
    assert len(cache) == 1201
    cache.close()


def test_the_file_is_private_and_outlives_the_process(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(1), vector(1))])
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    cache.close()
    assert same(EmbeddingCache(path, "f").get([key(1)])[key(1)], vector(1))


def test_another_encoder_drops_what_is_there(tmp_path):
    path = tmp_path / "embeddings.db"
    first = EmbeddingCache(path, "f")
    first.put([(key(1), vector(1))])
    first.close()
    second = EmbeddingCache(path, "g")
    assert second.get([key(1)]) == {}
    assert len(second) == 0
    second.close()
    assert len(EmbeddingCache(path, "f")) == 0


def test_two_encoders_at_once_never_get_each_other_s(tmp_path):
    path = tmp_path / "embeddings.db"
    first = EmbeddingCache(path, "f")
    first.put([(key(1), vector(1))])
    second = EmbeddingCache(path, "g")
    assert second.get([key(1)]) == {}
    second.put([(key(1), vector(99))])
    first.put([(key(2), vector(2))])
    assert second.get([key(2)]) == {}
    assert same(second.get([key(1)])[key(1)], vector(99))
    assert first.get([key(1)]) == {} or same(first.get([key(1)])[key(1)], vector(1))
    first.close()
    second.close()


def test_the_oldest_go_when_the_bound_is_passed(path):
    size = 5 * 2 + 5 * 2 + 64
    cache = EmbeddingCache(path, "f", max_bytes=20 * size)
    for i in range(100):
        cache.put([(key(i), vector(i))])
        assert len(cache) <= 20
        assert key(i) in cache.get([key(i)])
    kept = sorted(i for i in range(100) if cache.get([key(i)]))
    assert kept == list(range(100 - len(kept), 100))
    assert len(kept) >= 18
    cache.close()


def test_a_bound_of_nothing_keeps_nothing(path):
    cache = EmbeddingCache(path, "f", max_bytes=0)
    cache.put([(key(1), vector(1))])
    assert len(cache) == 0


def test_putting_again_is_harmless(path):
    cache = EmbeddingCache(path, "f", max_bytes=1000)
    for _ in range(50):
        cache.put([(key(1), vector(1)), (key(2), vector(2))])
    assert len(cache) == 2


@pytest.mark.parametrize("contents", [b"not a database" * 500, b"SQLite format 3\0" + b"\xee" * 9000])
def test_a_damaged_file_is_replaced_with_a_warning(tmp_path, contents):
    path = tmp_path / "embeddings.db"
    path.write_bytes(contents)
    cache = EmbeddingCache(path, "f")
    with pytest.warns(RuntimeWarning, match=r"embeddings\.db"):
        cache.put([(key(1), vector(1))])
    cache.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(EmbeddingCache(path, "f").get([key(1)])[key(1)], vector(1))


def test_damage_met_later_costs_a_warning_not_a_search(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(i), vector(i, 200)) for i in range(300)])
    cache.keep_only({key(i) for i in range(300)})
    cache.close()
    data = bytearray(path.read_bytes())
    data[4096 * 4 :] = b"\xee" * (len(data) - 4096 * 4)
    path.write_bytes(bytes(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = EmbeddingCache(path, "f")
        for _ in range(3):
            found = cache.get([key(i) for i in range(300)])
            assert all(same(v, vector(i, 200)) for i in range(300) if (v := found.get(key(i))) is not None)
            cache.put([(key(i), vector(i, 200)) for i in range(300)])
    assert len(cache.get([key(i) for i in range(300)])) == 300
    cache.close()


def test_a_changed_byte_in_a_value_is_noticed(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(1), vector(1)), (key(2), vector(2))])
    cache.close()
    with sqlite3.connect(path) as c:
        own = hashlib.sha256(b"f" + key(1)).digest()[:16]
        c.execute("UPDATE vectors SET weights = ? WHERE key = ?", (vector(77)[1].tobytes(), own))
        assert c.total_changes == 1
    c.close()
    cache = EmbeddingCache(path, "f")
    assert set(cache.get([key(1), key(2)])) == {key(2)}
    cache.put([(key(1), vector(1))])
    assert same(cache.get([key(1)])[key(1)], vector(1))
    cache.close()


def test_a_link_is_not_followed(tmp_path):
    with sqlite3.connect(tmp_path / "theirs.db") as c:
        c.execute("CREATE TABLE precious (x)")
    c.close()
    before = (tmp_path / "theirs.db").read_bytes()
    (tmp_path / "embeddings.db").symlink_to(tmp_path / "theirs.db")
    cache = EmbeddingCache(tmp_path / "embeddings.db", "f")
    with pytest.warns(RuntimeWarning, match="memory"):
        cache.put([(key(1), vector(1))])
    assert same(cache.get([key(1)])[key(1)], vector(1))
    assert (tmp_path / "theirs.db").read_bytes() == before


def test_purging_overwrites_and_keeps_the_rest(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(i), vector(i, 100)) for i in range(20)])
    cache.keep_only({key(3)})
    assert set(cache.get([key(i) for i in range(20)])) == {key(3)}
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert not any(vector(i, 100)[1].tobytes() in data for i in range(20) if i != 3)
    cache.close()


def test_a_purge_that_cannot_be_done_is_an_error(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(i), vector(i)) for i in range(20)])
    cache._connection.execute("PRAGMA busy_timeout = 50")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM vectors").fetchone()
        with pytest.raises(StorageError, match="embeddings"):
            cache.keep_only({key(3)})
        other.execute("COMMIT")
    other.close()
    cache.keep_only({key(3)})
    assert len(cache) == 1
    cache.close()


def test_threads_may_share_a_cache(path):
    cache = EmbeddingCache(path, "f")
    faults = []

    def work(start):
        try:
            for i in range(start, start + 30):
                cache.put([(key(i), vector(i))])
                assert same(cache.get([key(i)])[key(i)], vector(i))
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []
    assert len(cache) == 120
    cache.close()


# Other models' embeddings beside V_theta


def dense(seed):
    return np.random.default_rng(seed).normal(size=8).astype(np.float32)


def test_spaces_share_a_file_and_never_a_vector(path):
    cache = EmbeddingCache(path, "f")
    cache.put([(key(1), vector(1))])
    one, two = cache.space("model one", ByteVectors()), cache.space("model two", ByteVectors())
    rounded = one.put([(key(1), dense(1)), (key(2), dense(2))])
    assert two.get([key(1), key(2)]) == {}
    two.put([(key(1), dense(3))])
    assert cache.space("model one", HalfVectors()).get([key(1)]) == {}
    found = one.get([key(1), key(2), key(9)])
    assert set(found) == {key(1), key(2)}
    for k in found:
        assert found[k].tobytes() == rounded[k].tobytes()
    np.testing.assert_allclose(found[key(1)], dense(1), atol=np.abs(dense(1)).max() / 250)
    assert same(cache.get([key(1)])[key(1)], vector(1))
    assert (one.has([key(1), key(5)]), two.has([key(2)])) == (1, 0)
    assert cache.nbytes > 0
    cache.close()


def test_spaces_outlive_the_process_and_go_with_the_encoder(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.space("m", ByteVectors()).put([(key(1), dense(1))])
    cache.close()
    assert len(EmbeddingCache(path, "f").space("m", ByteVectors()).get([key(1)])) == 1
    assert EmbeddingCache(path, "g").space("m", ByteVectors()).get([key(1)]) == {}


def test_purging_keeps_every_known_space(path):
    cache = EmbeddingCache(path, "f")
    space = cache.space("m", ByteVectors())
    cache.put([(key(i), vector(i)) for i in range(4)])
    space.put([(key(i), dense(i)) for i in range(4)])
    cache.keep_only({key(2)})
    assert set(cache.get([key(i) for i in range(4)])) == {key(2)}
    assert set(space.get([key(i) for i in range(4)])) == {key(2)}
    cache.close()


def test_another_rounding_is_another_embedding(tmp_path):
    path = tmp_path / "embeddings.db"
    half = EmbeddingCache(path, "f")
    half.put([(key(1), vector(1))])
    half.close()
    cache = EmbeddingCache(path, "f", codec=ByteWeights())
    assert cache.get([key(1)]) == {}
    rounded = cache.put([(key(1), vector(1))])[key(1)]
    cache.close()
    again = EmbeddingCache(path, "f", codec=ByteWeights()).get([key(1)])[key(1)]
    assert again[1].dtype == np.float32
    assert again[1].tobytes() == rounded[1].tobytes()


def test_bytes_that_are_no_vector_are_as_good_as_absent(tmp_path):
    path = tmp_path / "embeddings.db"
    cache = EmbeddingCache(path, "f")
    cache.put([(key(1), vector(1)), (key(2), vector(2))])
    own = cache.theta.stored_key(key(1))
    first, second = b"\5\0\1\0", np.ones(2, np.float16).tobytes()  # falling dimensions, with a right checksum
    cache.write([(own, first, second)])
    assert set(cache.get([key(1), key(2)])) == {key(2)}
    cache.close()


def test_the_mark_of_what_is_embedded(path):
    size = 5 * 2 + 5 * 2 + 64
    cache = EmbeddingCache(path, "f", max_bytes=10 * size)
    assert cache.embedded_until == 0
    cache.mark_embedded(17)
    cache.put([(key(1), vector(1))])
    assert cache.embedded_until == 17
    if path is not None:
        cache.close()
        assert EmbeddingCache(path, "f").embedded_until == 17
    cache.put([(key(i), vector(i)) for i in range(20)])
    assert cache.embedded_until == 0, "some of it was forgotten"
    cache.mark_embedded(5)
    if path is not None:
        cache.close()
        assert EmbeddingCache(path, "g").embedded_until == 0, "another encoder"
    cache.close()
