"""A model that the trainer wrote: late search takes the dense head it was trained with."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sidr_rag import SiDR
from sidr_rag.errors import InvalidInputError
from sidr_rag.rerank.late import blend_scores

torch = pytest.importorskip("torch")

SHARE = 0.35
TEXTS = [f"a{i} a{i + 1} a{(i * 7) % 30} a5" + " a9" * (i % 3) for i in range(12)]
QUERY = "a5 a6"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function (quantize, dense) -> folder written by the trainer, and the trainable encoder it was written from."""
    from sidr_rag.encoder.config import PerSide
    from sidr_rag.encoder.config_layouts import load_config
    from sidr_rag.encoder.model_tokenizer import load_tokenizer
    from sidr_rag.train.model import TrainableEncoder
    from sidr_rag.train.sections import Model
    from sidr_rag.train.weights_io import initial_state, load_state, model_config, save_model

    # The encoder's tests know how to write a tiny model; with importlib imports they are on no path.
    path = Path(__file__).resolve().parents[1] / "encoder" / "conftest.py"
    spec = importlib.util.spec_from_file_location("encoder_conftest", path)
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    base = tiny.write_model(tmp_path_factory.mktemp("base") / "tiny", tiny.tiny_weights())

    def make(*, quantize, dense=True):
        shape = Model(dropout=0.0, max_active_dims=PerSide(8, 16), max_length=PerSide(16, 32))
        config = model_config(base, shape, "two heads")
        tokenizer = load_tokenizer(base, config, "nfkc")
        ids = torch.from_numpy(tokenizer.vocabulary.dim_to_token.astype(np.int64))
        encoder = TrainableEncoder(config, ids, 0.0, torch.float32).eval()
        load_state(encoder, initial_state(base, config, "query", 0.0))
        weights = {name: value.numpy() for name, value in encoder.state_dict().items()}
        folder = tmp_path_factory.mktemp("out") / "two-heads"
        save_model(folder, {"query": weights}, config, base, dense=dense, rerank_blend=SHARE, quantize=quantize)
        assert (load_config(folder).dense is not None) is dense
        return folder, encoder, lambda text: [101, *tokenizer.sequence_ids(text), 102]

    return make


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("quantize", [False, True])
def test_late_search_blends_the_trained_dense_head(trained, tmp_path, backend, quantize):
    folder, encoder, read = trained(quantize=quantize)
    with torch.no_grad():
        passages = encoder.dense(encoder.encode([read(text) for text in TEXTS])).numpy()
        query = encoder.dense(encoder.encode([read(QUERY)])).numpy()[0]
    cosines = (passages @ query).astype(np.float64)
    numbers = [str(i) for i in range(len(TEXTS))]
    with SiDR.from_texts(TEXTS, ids=numbers, path=tmp_path / "s", model=folder, backend=backend, device="cpu") as sidr:
        dense = {r.passage.id: r.score for r in sidr.search(QUERY, k=12, rerank=12, reranker="dense")}
        assert sorted(dense) == sorted(numbers)
        # Weights in int8, where quantized, and the kept vectors in int8.
        near = 0.03 if quantize else 0.01
        np.testing.assert_allclose([dense[i] for i in numbers], cosines, atol=near)
        first = {r.passage.id: r.score for r in sidr.search(QUERY, k=12)}
        order = sorted(first, key=first.__getitem__)
        blended = blend_scores(
            np.array([first[i] for i in order], np.float32), np.array([dense[i] for i in order]), SHARE
        )
        own = {r.passage.id: r.score for r in sidr.search(QUERY, k=12, rerank=12)}
        assert own == pytest.approx(dict(zip(order, blended.tolist(), strict=True)), abs=1e-6)
        with sidr.measured() as costs:
            sidr.search(QUERY, rerank=12)
        assert (costs.passages, costs.cache_hits) == (0, len(TEXTS))
        width = sidr.encoder.dense_width
        kept = len(TEXTS) * (width + 4 + 64)  # one byte a number, the scale and the row
        assert sidr.info()["cache_bytes"] == kept, "late search by the dense head embeds no V_theta"


def test_a_model_without_the_head_blends_v_theta(trained):
    folder, _, _ = trained(quantize=False, dense=False)
    numbers = [str(i) for i in range(len(TEXTS))]
    with SiDR.from_texts(TEXTS, ids=numbers, model=folder, backend="numpy") as sidr:
        own = {r.passage.id: r.score for r in sidr.search(QUERY, k=12, rerank=12)}
        theta = {r.passage.id: r.score for r in sidr.search(QUERY, k=12, rerank=12, reranker="theta")}
        first = {r.passage.id: r.score for r in sidr.search(QUERY, k=12)}
        order = sorted(first, key=first.__getitem__)
        blended = blend_scores(
            np.array([first[i] for i in order], np.float32), np.array([theta[i] for i in order]), SHARE
        )
        assert own == pytest.approx(dict(zip(order, blended.tolist(), strict=True)), abs=1e-6)
        with pytest.raises(InvalidInputError, match="no dense head"):
            sidr.search(QUERY, rerank=12, reranker="dense")


def test_kept_vectors_of_one_training_serve_no_other(trained, tmp_path):
    folder, encoder, _ = trained(quantize=False)
    with SiDR.from_texts(TEXTS, path=tmp_path / "s", model=folder, backend="numpy") as sidr:
        before = sidr.search(QUERY, k=12, rerank=12)
        tokenizer = sidr.info()["tokenizer"]
    from sidr_rag.encoder.config_layouts import load_config
    from sidr_rag.train.weights_io import save_model

    weights = {name: value.numpy() * 1.1 for name, value in encoder.state_dict().items()}
    later = tmp_path / "later"
    config = replace(load_config(folder), name="trained on")
    save_model(later, {"query": weights}, config, folder, dense=True, rerank_blend=SHARE, quantize=False)
    with SiDR.open(tmp_path / "s", model=later, backend="numpy") as sidr:
        with sidr.measured() as costs:
            after = sidr.search(QUERY, k=12, rerank=12)
        assert costs.passages == len(TEXTS), "the old vectors are gone"
        assert sidr.info()["tokenizer"] == tokenizer, "the index stays"
        assert [r.score for r in after] != [r.score for r in before]
        assert {r.passage.id for r in after} == {r.passage.id for r in before}
