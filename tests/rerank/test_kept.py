"""A cache over a file that it may only read: it uses what is there, and leaves no trace."""

import os
import shutil
import sqlite3
import subprocess
import sys
import warnings

import numpy as np
import pytest

from sidr_rag.rerank.cache import EmbeddingCache, content_key
from sidr_rag.rerank.codecs import ByteVectors, ByteWeights


def weights_of(seed, n=5):
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(1000, n, replace=False)).astype(np.int32), rng.random(n).astype(np.float16)


def text_key(i):
    return content_key(f"text {i}")


def filled(path, numbers=range(1200), mark=1200):
    """A writer that has put embeddings of the numbered texts into the file."""
    writer = EmbeddingCache(path, "f")
    writer.put([(text_key(i), weights_of(i)) for i in numbers])
    writer.space("m", ByteVectors()).put([(text_key(1), np.ones(4, np.float32))])
    writer.mark_embedded(mark)
    return writer


def trace(folder):
    """Names, bytes and times of everything in a folder."""
    return {
        path.name: (path.read_bytes() if path.is_file() else b"", path.lstat().st_mtime_ns)
        for path in [folder, *folder.iterdir()]
    }


def copied(source, place, ends):
    """A folder with copies of a database and its journals, named as in a store."""
    place.mkdir()
    for end in ends:
        shutil.copy2(source.with_name(source.name + end), place / f"embeddings.db{end}")
    return place


WRITER = """
import sys
from pathlib import Path
import numpy as np
from sidr_rag.rerank.cache import EmbeddingCache, content_key
writer = EmbeddingCache(Path(sys.argv[1]), "f")
writer.put([(content_key("written meanwhile"), (np.arange(5, dtype=np.int32), np.ones(5, np.float16)))])
print("put", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["closed", "written to", "left open", "without its index"])
def folder(request, tmp_path):
    """A folder with embeddings: at rest, with a live writer, as a killed one leaves it, and a copy of the latter."""
    source = tmp_path / "s.db"
    writer = filled(source)
    if request.param == "left open":
        yield copied(source, tmp_path / "place", ("", "-wal", "-shm"))
        writer.close()
        return
    if request.param == "without its index":
        with sqlite3.connect(source) as c:
            c.execute("PRAGMA wal_checkpoint")
        c.close()
        writer.put([(text_key(5000), weights_of(5000))])
        yield copied(source, tmp_path / "place", ("", "-wal"))
        writer.close()
        return
    writer.close()
    place = copied(source, tmp_path / "place", ("",))
    if request.param == "closed":
        yield place
        return
    command = [sys.executable, "-c", WRITER, str(place / "embeddings.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "put\n"
        yield place
        process.stdin.close()


def test_what_is_kept_is_used_and_nothing_is_written(folder, request):
    before = trace(folder)
    cache = EmbeddingCache(folder / "embeddings.db", "f", read_only=True)
    meanwhile = cache.get([content_key("written meanwhile")])
    assert len(meanwhile) == (request.node.callspec.params["folder"] == "written to")
    found = cache.get([text_key(i) for i in range(1300)])
    assert set(found) == {text_key(i) for i in range(1200)}
    for i in range(1200):
        dims, weights = weights_of(i)
        assert found[text_key(i)][0].tolist() == dims.tolist()
        assert found[text_key(i)][1].tobytes() == weights.tobytes()
    assert cache.embedded_until == 1200
    assert cache.theta.has([text_key(i) for i in range(1300)]) == 1200
    assert len(cache.space("m", ByteVectors()).get([text_key(1)])) == 1
    assert len(cache) == 1201 + len(meanwhile)
    held = cache.nbytes
    cache.put([(text_key(2000), weights_of(2000))])
    cache.space("m", ByteVectors()).put([(text_key(2), np.ones(4, np.float32))])
    cache.mark_embedded(2001)
    assert set(cache.get([text_key(2000), text_key(3)])) == {text_key(2000), text_key(3)}
    assert cache.theta.has([text_key(2000), text_key(3), text_key(9999)]) == 2
    assert cache.embedded_until == 2001
    assert cache.nbytes > held
    cache.close()
    assert trace(folder) == before
    assert set(cache.get([text_key(3)])) == {text_key(3)}, "opened again"
    cache.close()
    assert trace(folder) == before


def test_what_the_bound_forgets_leaves_the_file_s_mark(tmp_path):
    filled(tmp_path / "embeddings.db").close()
    cache = EmbeddingCache(tmp_path / "embeddings.db", "f", max_bytes=500, read_only=True)
    cache.mark_embedded(3000)
    assert cache.embedded_until == 3000
    cache.put([(text_key(i), weights_of(i)) for i in range(2000, 2020)])
    assert cache.n_forgotten > 0
    assert cache.embedded_until == 1200
    assert len(cache.get([text_key(i) for i in range(1200)])) == 1200
    cache.close()


@pytest.mark.parametrize("other", [{"fingerprint": "g"}, {"fingerprint": "f", "codec": ByteWeights()}])
@pytest.mark.parametrize("live", [False, True])
def test_embeddings_of_another_encoder_are_none(tmp_path, other, live):
    writer = filled(tmp_path / "s.db")
    if not live:
        writer.close()
    place = copied(tmp_path / "s.db", tmp_path / "place", ("", "-wal", "-shm") if live else ("",))
    before = trace(place)
    cache = EmbeddingCache(place / "embeddings.db", read_only=True, **other)
    assert cache.get([text_key(1)]) == {}
    assert cache.space("m", ByteVectors()).get([text_key(1)]) == {}
    assert (cache.embedded_until, len(cache), cache.nbytes) == (0, 0, 0)
    cache.put([(text_key(1), weights_of(1))])
    assert len(cache.get([text_key(1)])) == 1
    cache.close()
    assert trace(place) == before
    writer.close()


def spoilt(path, how):
    if how == "missing":
        return
    if how == "empty":
        path.write_bytes(b"")
    elif how == "no database":
        path.write_bytes(b"damaged" * 999)
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    else:
        filled(path.with_name("whole.db")).close()
        whole = path.with_name("whole.db")
        if how == "link":
            path.symlink_to(whole)
            return
        data = bytearray(whole.read_bytes())
        if how == "cut":
            del data[len(data) // 3 :]
        elif how == "overwritten":
            rng = np.random.default_rng(1)
            data[4096:] = rng.bytes(len(data) - 4096)
        path.write_bytes(data)
        whole.unlink()
        if how == "no tables":
            with sqlite3.connect(path) as c:
                c.execute("DROP TABLE vectors")
            c.close()


@pytest.mark.parametrize(
    "how", ["missing", "empty", "no database", "folder", "pipe", "link", "cut", "overwritten", "no tables"]
)
def test_a_file_that_cannot_be_used_is_as_good_as_absent(tmp_path, how):
    place = tmp_path / "place"
    place.mkdir()
    spoilt(place / "embeddings.db", how)
    before = {name: one for name, one in trace(place).items() if name != "whole.db"}
    cache = EmbeddingCache(place / "embeddings.db", "f", read_only=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # A file that was cut may give what is whole in it, and nothing else.
        for i, vector in enumerate(cache.get([text_key(i) for i in range(1200)]).values()):
            assert how == "cut", i
            assert len(vector[0]) == 5
        cache.put([(text_key(1), weights_of(1))])
        assert len(cache.get([text_key(1)])) == 1
        assert cache.theta.has([text_key(1)]) == 1
        n = len(said)
        cache.get([text_key(2)])
        if how in ("no database", "overwritten"):
            assert n >= 1
            assert len(said) == n, "told once"
            assert "embeddings.db" in str(said[0].message)
    cache.close()
    after = {name: one for name, one in trace(place).items() if name != "whole.db"}
    assert after == before


def test_values_of_another_type_and_marks_that_are_no_number_are_passed_over(tmp_path):
    path = tmp_path / "embeddings.db"
    writer = filled(path, range(3), mark=3)
    own = writer.theta.stored_key(text_key(1))
    writer.close()
    with sqlite3.connect(path) as c:
        c.execute("UPDATE vectors SET dims = 'text', weights = 7 WHERE key = ?", (own,))
        c.execute("UPDATE meta SET value = ? WHERE key = 'embedded_until'", ("9" * 5000,))
    c.close()
    for read_only in (True, False):
        cache = EmbeddingCache(path, "f", read_only=read_only)
        assert set(cache.get([text_key(i) for i in range(3)])) == {text_key(0), text_key(2)}
        assert cache.embedded_until == 0
        cache.close()


def test_what_a_writer_adds_later_is_seen_and_the_writer_is_not_in_the_way(tmp_path):
    path = tmp_path / "embeddings.db"
    reader = EmbeddingCache(path, "f", read_only=True)
    assert reader.get([text_key(1)]) == {}
    writer = filled(path, [1], mark=1)
    assert set(reader.get([text_key(1), text_key(2)])) == {text_key(1)}
    writer.put([(text_key(2), weights_of(2))])
    writer.mark_embedded(2)
    assert set(reader.get([text_key(1), text_key(2)])) == {text_key(1), text_key(2)}
    assert reader.embedded_until == 2
    writer.keep_only({text_key(2)})
    assert set(reader.get([text_key(1), text_key(2)])) == {text_key(2)}
    writer.close()
    assert set(path.parent.iterdir()) == {path}, "the journal is gone as ever"
    assert set(reader.get([text_key(1), text_key(2)])) == {text_key(2)}
    again = EmbeddingCache(path, "f")
    again.put([(text_key(3), weights_of(3))])
    assert set(reader.get([text_key(3)])) == {text_key(3)}
    again.close()
    assert set(reader.get([text_key(3)])) == {text_key(3)}
    path.unlink()
    assert reader.get([text_key(3)]) == {}
    reader.close()


def test_a_reader_of_a_killed_writer_s_files_leaves_them_usable_for_the_next(tmp_path):
    writer = filled(tmp_path / "s.db", [1])
    place = copied(tmp_path / "s.db", tmp_path / "place", ("", "-wal", "-shm"))
    writer.close()
    reader = EmbeddingCache(place / "embeddings.db", "f", read_only=True)
    assert len(reader.get([text_key(1)])) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = EmbeddingCache(place / "embeddings.db", "f")
        after.put([(text_key(2), weights_of(2))])
        assert len(reader.get([text_key(1), text_key(2)])) == 2
        after.put([(text_key(3), weights_of(3))])
        after.close()
    assert len(EmbeddingCache(place / "embeddings.db", "f").get([text_key(i) for i in (1, 2, 3)])) == 3
    reader.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_reads_on(tmp_path):
    filled(tmp_path / "embeddings.db").close()
    cache = EmbeddingCache(tmp_path / "embeddings.db", "f", read_only=True)
    assert len(cache.get([text_key(1)])) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os._exit(0 if len(cache.get([text_key(1), text_key(2)])) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(cache.get([text_key(1), text_key(3)])) == 2
    cache.close()
