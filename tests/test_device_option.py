"""`device=` and `kernel=` of the engine: a torch device finds what the NumPy reference finds, over a store's life."""

from __future__ import annotations

import importlib.util
import pickle
import random
import sys
import threading
import weakref

import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag import InvalidInputError, MissingExtraError, SiDR, Weighting
from sidr_rag.search import beta
from sidr_rag.search.beta import BetaSearcher, check_kernel
from sidr_rag.search.device import presence
from sidr_rag.search.searcher import SearchPool
from sidr_rag.search.weighting import BINARY
from sidr_rag.types import SparseVectors

torch = pytest.importorskip("torch")

LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)
WORDS = [chr(ord("a") + i) for i in range(26)]
NO_CARD = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


def text_of(rng):
    """Up to 30 words, a few of them frequent; now and then none."""
    return " ".join(WORDS[int(26 * rng.random() ** 2)] for _ in range(rng.randrange(31)))


def shown(results):
    return [[(r.passage.id, r.score, r.rank, r.beta_score, r.reranked) for r in found] for found in results]


def asked_of(rng):
    condition = rng.choice([None, None, {"n": {"lt": 4}}, {"or": [{"n": 1}, {"n": 9}]}, {"n": 77}])
    return {
        "k": rng.choice([1, 3, 10, 500]),
        "filter": condition,
        "first_stage": rng.choice(["sidr", "sidr", "lexical", "overlap"]),
        "rerank": rng.choice([0, 0, 4]),
    }


def change(rng, sidrs, number):
    """One random change, the same of each."""
    kind = rng.choice(["add", "add", "replace", "delete", "delete", "delete", "compact"])
    known = sidrs[0].ids()
    if kind == "compact":
        for sidr in sidrs:
            sidr.compact()
    elif kind == "delete":
        chosen = rng.sample(known, len(known) // 5)
        assert [sidr.delete(chosen) for sidr in sidrs] == [len(chosen)] * len(sidrs)
    else:
        ids = rng.sample(known, min(len(known), 5)) if kind == "replace" else [f"{number}-{i}" for i in range(40)]
        texts = [text_of(rng) for _ in ids]
        metadatas = [{"n": rng.randrange(10)} for _ in ids]
        for sidr in sidrs:
            sidr.add(texts, ids=ids, metadatas=metadatas)


@pytest.mark.parametrize("weighting", [BINARY, LEVELLED], ids=["binary", "levelled"])
@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("seed", range(2))
def test_any_history_has_the_reference_s_results(make, tiny, tmp_path, place, weighting, seed):
    rng = random.Random(seed)
    paths = [None, None] if place == "memory" else [tmp_path / "reference", tmp_path / "device"]
    reference, device = (
        make(path, tokenizer=tiny, encoder=StubEncoder(tiny, spread=3), weighting=weighting, kernel=kernel)
        for path, kernel in zip(paths, ("numpy", "torch"), strict=True)
    )
    n_found = 0
    for number in range(12):
        change(rng, [reference, device], number)
        queries = [text_of(rng) for _ in range(rng.choice([1, 2, 5]))]
        arguments = asked_of(rng)
        right = shown(reference.search(queries, **arguments))
        assert shown(device.search(queries, **arguments)) == right
        n_found += sum(map(len, right))
        vectors = SparseVectors.from_rows([(np.arange(26), np.array([rng.random() for _ in range(26)]))], 26)
        expected, found = (sidr.search_vectors(vectors, k=7) for sidr in (reference, device))
        assert found.ids == expected.ids
        assert found.scores.tobytes() == expected.scores.tobytes()
    assert n_found > 50
    assert device.info()["device_bytes"] > 0
    assert reference.info()["device_bytes"] == 0


def test_triton_s_kernels_too(make, tiny, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    rng = random.Random(5)
    sidrs = [make(tokenizer=tiny, weighting=LEVELLED, kernel=kernel) for kernel in ("numpy", "triton")]
    for number in range(3):
        change(rng, sidrs, number)
        queries = [text_of(rng) for _ in range(2)]
        reference, device = (shown(sidr.search(queries, k=5)) for sidr in sidrs)
        assert device == reference
    assert type(sidrs[1]._pipeline.first._searcher._searcher()._scorer).__name__ == "TritonScorer"


def test_a_reader_sees_what_others_commit(make, tiny, tmp_path):
    rng = random.Random(6)
    writer = make(tmp_path / "s", tokenizer=tiny, kernel="numpy")
    change(rng, [writer], 0)
    reader = make(tmp_path / "s", tokenizer=tiny, read_only=True, kernel="torch")
    for number in range(6):
        assert shown(reader.search(["a b c d"], k=20)) == shown(writer.search(["a b c d"], k=20))
        change(rng, [writer], number + 1)


def test_what_is_gone_is_freed(make, tiny):
    rng = random.Random(7)
    sidr = make(tokenizer=tiny, kernel="torch")
    for number in range(3):
        sidr.add([text_of(rng) for _ in range(30)], ids=[f"{number}-{i}" for i in range(30)])
        sidr.search("a b c")
    held = sidr._pipeline.first._searcher._searcher()._shards[0]._parts
    assert len(held) == 3  # only what was new was copied
    tensors = [weakref.ref(part.levels[0].dims) for part in held]
    del held
    sidr.delete([f"0-{i}" for i in range(30)])
    sidr.compact()
    sidr.search("a b c")
    assert [tensor() for tensor in tensors] == [None] * 3
    assert sidr.info()["device_bytes"] > 0
    sidr.close()
    assert sidr._pipeline.first.device_bytes == 0


def test_searches_go_on_while_passages_are_added(make, tiny):
    rng = random.Random(8)
    sidr = make(tokenizer=tiny, kernel="torch", num_threads=2)
    sidr.add(["a a b"] * 20, ids=[f"first-{i}" for i in range(20)])
    wrong = []

    def ask():
        for _ in range(15):
            found = [r.passage.id for r in sidr.search("a b", k=20)]
            if len(found) != 20 or found[0] != "first-0":
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(8):
        sidr.add([text_of(rng).replace("a", "z") for _ in range(10)], ids=[f"{number}-{i}" for i in range(10)])
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_pickled_engine_searches_where_its_model_did(make, tiny, tmp_path):
    made = make(tmp_path / "s", tokenizer=tiny, kernel="torch", device="cpu")
    made.add(["a b", "b c", "d"], ids=["1", "2", "3"])
    right = shown(made.search(["b"]))
    made.close()
    # Only a folder's arguments are kept, never what a device holds.
    with pickle.loads(pickle.dumps(made)) as again:
        assert (again._arguments["kernel"], again._arguments["device"]) == ("torch", "cpu")
        assert again.info()["device_bytes"] == 0
        assert shown(again.search(["b"])) == right
        assert again.info()["device_bytes"] > 0


FORKING = """
import os, sys, threading, warnings
from stub_encoders import TinyTokenizer, stub_sidr
sidr = stub_sidr(TinyTokenizer(), kernel="torch", num_threads=2)
sidr.add(["a b", "b c", "c d"] * 40)
show = lambda: [(r.passage.id, r.score) for r in sidr.search("b c", k=30)]
right = show()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    process = os.fork()
    if not process:
        same = show() == right and show() == right and sidr.info()["device_bytes"] == 0
        told = [str(w.message) for w in caught if w.category is RuntimeWarning and "torch device" in str(w.message)]
        sidr.close()
        os._exit(0 if same and len(told) == 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
assert show() == right and sidr.info()["device_bytes"] > 0
"""


def test_a_forked_child_searches_on_the_processor_and_says_so(child):
    child(FORKING)


# What may be asked for


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kernel": "gpu"}, "kernel='gpu' is not known.*'torch', 'triton'"),
        ({"kernel": None}, "kernel=None is not known"),
        ({"kernel": "triton", "device": "cpu"}, "kernel='triton' needs a CUDA device.*device='cpu'.*device='cuda'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_indexed(monkeypatch, tmp_path, options, told):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InvalidInputError, match=told):
        SiDR.from_texts(["a"], path=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


@NO_CARD
def test_a_card_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for options, told in (
        ({"device": "cuda"}, "device is 'cuda'.*'auto'"),
        ({"device": "cuda:3", "kernel": "torch"}, "device is 'cuda:3'"),
        ({"kernel": "triton"}, "kernel='triton' needs a CUDA device.*'auto' or 'torch'"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            SiDR.from_texts(["a"], path=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


@NO_CARD
def test_parts_tied_by_hand_name_a_card_that_is_not_there(make, tiny):
    sidr = make(tokenizer=tiny, device="cuda:1")
    sidr.add(["a b"])
    with pytest.raises(InvalidInputError, match="device='cuda:1'"):
        sidr.search("a")


def test_an_absent_package_is_named(monkeypatch):
    find = importlib.util.find_spec
    for absent, kernel in (("torch", "torch"), ("triton", "triton")):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, absent=absent: None if name == absent else find(name)
        )
        with pytest.raises(
            MissingExtraError, match=rf"kernel='{kernel}' needs the package '{absent}'.*sidr-rag\[gpu\]"
        ):
            check_kernel(kernel, "auto")
        check_kernel("auto", "auto")


@pytest.mark.parametrize(
    ("kernel", "device", "card", "expected"),
    [
        ("auto", "auto", False, None),
        ("auto", "cpu", True, None),
        ("auto", "auto", True, ("cuda", "auto")),
        ("auto", "cuda", True, ("cuda", "auto")),
        ("auto", "cuda:1", True, ("cuda:1", "auto")),
        ("numpy", "cuda", True, None),
        ("numba", "auto", True, None),
        ("torch", "auto", False, ("cpu", "torch")),
        ("torch", "auto", True, ("cuda", "torch")),
        ("torch", "cpu", True, ("cpu", "torch")),
        ("triton", "auto", True, ("cuda", "triton")),
    ],
)
def test_where_each_choice_searches(monkeypatch, kernel, device, card, expected):
    from sidr_rag.search.device import scorer, searcher

    monkeypatch.setattr(beta, "cuda_is_here", lambda: card)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: card)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * card)
    monkeypatch.setattr(scorer, "scorer_for", lambda device, kernel: kernel)
    monkeypatch.setattr(searcher, "DeviceSearcher", lambda device, *, scorer, pool: (device, scorer))
    assert BetaSearcher(SearchPool(1), kernel, device)._searcher() == expected


def test_the_options_reach_the_search(tmp_path):
    with SiDR.from_texts(["a cat", "a dog"], path=tmp_path / "s", kernel="torch", device="cpu") as made:
        first = made.search("cat", first_stage="lexical")
        assert made.info()["device_bytes"] > 0
    with SiDR.open(tmp_path / "s", kernel="torch") as again:
        assert again.search("cat", first_stage="lexical") == first
        assert again.info()["device_bytes"] > 0
    with SiDR.open(tmp_path / "s", device="cpu") as plain:
        assert plain.search("cat", first_stage="lexical") == first
        assert plain.info()["device_bytes"] == 0


def test_torch_is_not_imported_where_no_card_can_be(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(presence, "_DRIVERS", (tmp_path / "none",))
    assert not presence.cuda_is_here()
    monkeypatch.setattr(presence, "_DRIVERS", (tmp_path,))  # a driver, but no torch
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not presence.cuda_is_here()
    assert "torch" not in sys.modules


# The encoder on a device


def test_the_encoder_moves_to_its_device_and_holds_no_logits_of_all_tokens():
    """On torch's "meta" device: whatever stayed on the processor could not be multiplied with what moved."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from sidr_rag.encoder import load_encoder
    from sidr_rag.encoder.torch_bert import _LOGIT_BLOCK_CUDA, TorchBert

    class Largest(TorchDispatchMode):
        n_elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.n_elements = max(self.n_elements, out.numel())
            return out

    encoder = load_encoder(backend="torch")
    token_ids = encoder.tokenizer.vocabulary.dim_to_token
    weights = encoder._backbones._side_weights("passage")
    model = TorchBert(weights, encoder.config, token_ids, torch.device("meta"), "bfloat16")
    model._logit_block = _LOGIT_BLOCK_CUDA
    sequences = [[101, *[2000] * 254, 102]] * 256
    with torch.inference_mode(), Largest() as largest:
        pooled = model._pool(model._head(model.body.pack(sequences)))
    assert pooled.device.type == "meta"
    assert pooled.shape == (256, encoder.dim)
    assert model.dtype == "bfloat16"
    assert largest.n_elements <= _LOGIT_BLOCK_CUDA < 256 * 256 * encoder.dim / 8
