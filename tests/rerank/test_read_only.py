"""A store opened read-only searches with the embeddings that are kept beside it, and leaves the folder as it is."""

import os

import pytest
from stub_encoders import StubEncoder

from sidr_rag.rerank import full

TEXTS = [f"{a} {b} harbor" for a in ("copper", "river", "winter", "amber") for b in ("stone", "gate", "lamp", "field")]
MANY = [f"{text} {i}" for i in range(8) for text in TEXTS]
SEARCHES = [
    {"rerank": 20},
    {"rerank": 20, "reranker": "theta"},
    {"search": "full"},
    {"search": "auto"},
]


def folder_trace(folder):
    return {
        path: (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture
def encoder(tokenizer):
    return StubEncoder(tokenizer, spread=3)


@pytest.fixture
def embedded(make, tokenizer, tmp_path):
    """A folder with a store that is embedded in full, and what each search finds there."""
    writer = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    writer.add(MANY, ids=[f"t{i}" for i in range(len(MANY))])
    assert len(MANY) > full.FEW_MISSING
    writer.embed()
    found = [writer.search("copper lamp", k=30, **each) for each in SEARCHES]
    writer.close()
    return tmp_path / "s", found


@pytest.fixture
def _unwritable(embedded, monkeypatch):
    """The folder refuses writing, also where the tests run as a user whom no mode stops."""
    folder, _ = embedded
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    folder.chmod(0o555)
    yield
    folder.chmod(0o755)


@pytest.mark.usefixtures("_unwritable")
def test_kept_embeddings_are_used_and_the_folder_stays_as_it_is(make, encoder, embedded):
    folder, expected = embedded
    before = folder_trace(folder)
    reader = make(folder, encoder=encoder, read_only=True)
    assert [reader.search("copper lamp", k=30, **each) for each in SEARCHES] == expected
    assert not any(r.reranked for r in reader.search("copper", search="auto"))
    assert reader.embed() == len(MANY)
    assert reader.costs().passages == 0
    assert encoder.encoded == []
    assert reader.info()["cache_bytes"] > 0
    assert folder_trace(folder) == before
    reader.close()
    assert folder_trace(folder) == before


@pytest.mark.parametrize("first", SEARCHES, ids=["late", "theta", "full", "auto"])
def test_each_search_alone_takes_what_is_kept(make, encoder, embedded, first):
    folder, expected = embedded
    before = {p: t for p, t in folder_trace(folder).items() if p.name.startswith("embeddings.db")}
    reader = make(folder, encoder=encoder, read_only=True)
    assert reader.search("copper lamp", k=30, **first) == expected[SEARCHES.index(first)]
    assert reader.costs().passages == 0
    reader.close()
    assert {p: t for p, t in folder_trace(folder).items() if p.name.startswith("embeddings.db")} == before


def test_only_what_is_new_is_embedded_and_stays_in_memory(make, tokenizer, encoder, embedded):
    folder, _ = embedded
    writer = make(folder, encoder=StubEncoder(tokenizer, spread=3))
    writer.add(["copper lamp copper"], ids=["new"])
    writer.close()
    kept = (folder / "embeddings.db").read_bytes()
    reader = make(folder, encoder=encoder, read_only=True)
    for _ in range(2):
        found = reader.search("copper lamp", k=30, search="auto")
        assert "new" in [r.passage.id for r in found]
        assert not any(r.reranked for r in found), "one passage is few enough for full search"
        assert encoder.encoded == ["copper lamp copper"]
    assert reader.costs().passages == 1
    reader.close()
    assert (folder / "embeddings.db").read_bytes() == kept


def test_a_reader_uses_what_a_writer_embeds_meanwhile(make, tokenizer, encoder, tmp_path):
    writer = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    writer.add(MANY)
    reader = make(tmp_path / "s", encoder=encoder, read_only=True)
    assert any(r.reranked for r in reader.search("copper", search="auto"))
    encoder.encoded.clear()
    writer.embed()
    found = reader.search("copper lamp", search="auto")
    assert found == writer.search("copper lamp", search="full")
    assert encoder.encoded == []


@pytest.mark.parametrize("how", ["gone", "damaged", "another encoder"])
def test_without_usable_embeddings_it_embeds_in_memory(make, tokenizer, embedded, how):
    folder, expected = embedded
    kept = folder / "embeddings.db"
    encoder = StubEncoder(tokenizer, spread=3, fingerprint="other" if how == "another encoder" else "stub-1")
    if how == "gone":
        kept.unlink()
    elif how == "damaged":
        kept.write_bytes(b"damaged" * 999)
    before = kept.read_bytes() if kept.exists() else None
    reader = make(folder, encoder=encoder, read_only=True)
    if how == "damaged":
        with pytest.warns(RuntimeWarning, match=r"embeddings\.db"):
            found = reader.search("copper lamp", k=30, search="full")
    else:
        found = reader.search("copper lamp", k=30, search="full")
    assert found == expected[2]
    assert reader.costs().passages == len(MANY)
    reader.close()
    assert (kept.read_bytes() if kept.exists() else None) == before
