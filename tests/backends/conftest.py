"""Every kind of backend behind one function, over stub encoders, and the real passages they are compared on."""

import gzip
import itertools
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidr_rag.backends import ShardedSiDR
from sidr_rag.backends.opening import backend_of
from sidr_rag.backends.remote import RemoteSiDR
from sidr_rag.backends.remote_store import RemoteStore
from sidr_rag.index.store import Store
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import Passage

SCIFACT = Path(__file__).resolve().parents[3] / "shared" / "data" / "eval" / "scifact"
LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)
WEIGHTINGS = {"binary": BINARY, "levelled": LEVELLED}
KINDS = ["local", "sharded", "qdrant", "qdrant-edge", "milvus"]
REMOTE = ["qdrant", "qdrant-edge", "milvus"]
N_REAL = 2000
N_FEW = 300

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
stubs = sys.modules["stub_encoders"]


def _needs(kind):
    for module in {"qdrant": ["qdrant_client"], "qdrant-edge": ["qdrant_edge"]}.get(kind, []):
        pytest.importorskip(module)
    if kind == "milvus":
        pytest.importorskip("pymilvus")
        pytest.importorskip("milvus_lite")


def url_of(kind, folder):
    place = folder / ("passages.db" if kind == "milvus" else "passages")
    return f"{kind}://{place}"


def open_on(kind, folder, tokenizer, *, weighting=BINARY, encoder=None, create=True, levels=stubs.LEVELS, **options):
    """A SiDR of a kind in a folder, over a stub encoder whose vectors have more dimensions than the text."""
    _needs(kind.removesuffix(":memory:"))
    encoder = encoder or stubs.StubEncoder(tokenizer, spread=10)
    if kind == "local":
        return stubs.stub_sidr(tokenizer, folder / "store", encoder=encoder, weighting=weighting, levels=levels)
    settings = stubs.stub_settings(tokenizer, levels, weighting=weighting.to_mapping())
    if kind == "sharded":
        paths = [folder / f"shard-{i}" for i in range(3)]
        shards = [
            Store.open(p, tokenizer) if (p / "sidr.json").exists() else Store.create(p, settings, tokenizer)
            for p in paths
        ]
        return ShardedSiDR.of(shards, encoder, weighting)
    place = url_of(kind, folder)
    if kind == "qdrant:memory:":
        from qdrant_client import QdrantClient

        place = QdrantClient(":memory:")
    backend = backend_of(place, None, {}, {})
    if create and not backend.exists():
        RemoteStore.create(backend, settings, weighting)
    return RemoteSiDR(RemoteStore(backend, tokenizer, **options), encoder, weighting)


def mirror(sidr, tokenizer, weighting=BINARY):
    """One local store in memory that holds the same passages, added in the same order."""
    local = stubs.stub_sidr(tokenizer, encoder=stubs.StubEncoder(tokenizer, spread=10), weighting=weighting)
    local.add_passages(sidr.get(sidr.ids()))
    return local


@dataclass
class Filled:
    """A backend with the real passages, the local engine beside it, and queries."""

    kind: str
    sidr: object
    local: object
    queries: list
    passages: list


@pytest.fixture(scope="session")
def real_passages():
    """2,000 real passages with metadata of many kinds."""
    if not SCIFACT.is_dir():
        pytest.skip("the judged sets are not on this machine")
    passages = []
    with gzip.open(SCIFACT / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for i, line in enumerate(itertools.islice(lines, N_REAL)):
            record = json.loads(line)
            passages.append(Passage(record["_id"], record["text"], record["title"], _metadata(i)))
    return passages


@pytest.fixture(scope="session")
def real_queries():
    if not SCIFACT.is_dir():
        pytest.skip("the judged sets are not on this machine")
    with gzip.open(SCIFACT / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in itertools.islice(lines, 8)]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=list(WEIGHTINGS))
def filled(request, kind, tokenizer, real_passages, real_queries, tmp_path_factory):
    """Changed by nobody."""
    weighting = WEIGHTINGS[request.param]
    made = _fill(kind, tokenizer, weighting, real_passages, real_queries, tmp_path_factory.mktemp(kind))
    yield made
    made.sidr.close()
    made.local.close()


@pytest.fixture(scope="module")
def few(kind, tokenizer, real_passages, real_queries, tmp_path_factory):
    """A part of the passages, for what is asked many times; changed by nobody."""
    made = _fill(kind, tokenizer, BINARY, real_passages[:N_FEW], real_queries, tmp_path_factory.mktemp(kind))
    yield made
    made.sidr.close()
    made.local.close()


def _fill(kind, tokenizer, weighting, passages, queries, folder):
    place = "qdrant:memory:" if kind == "qdrant" else kind  # its file takes one transaction for every point
    sidr = open_on(place, folder, tokenizer, weighting=weighting)
    block = len(passages) // 3  # so that sharded stores have some in each shard
    for start in range(0, len(passages), block):
        sidr.add_passages(passages[start : start + block])
    return Filled(kind, sidr, mirror(sidr, tokenizer, weighting), queries, passages)


@pytest.fixture
def empty(kind, tokenizer, tmp_path):
    """A function (**options) -> an empty SiDR of the kind; closed at the end."""
    opened = []

    def build(folder=tmp_path, **options):
        opened.append(open_on(kind, folder, tokenizer, **options))
        return opened[-1]

    yield build
    for sidr in opened:
        sidr.close()


def _metadata(i):
    """Values of all kinds, also the same number as int, float and string, and lists beside single values."""
    values = {
        "owner": ["amber", "blue", "café", 'qu"ote', "", None][i % 6],
        "page": [i % 40, float(i % 40), str(i % 40), (i % 40) + 0.5, i % 40 == 1][i % 5],
        "tags": [["a", "b"], ["b"], [], "a", ["c", 3], {"a": 1}][i % 6],
        "nested": {"deep": {"n": i % 7, "flag": i % 2 == 0}},
        "dotted.key": i % 3,
    }
    if i % 4 == 0:
        del values["owner"]
    if i % 9 == 0:
        values["huge"] = 2**60 + i
    return values
