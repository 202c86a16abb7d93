import gzip
import json
import math
import shutil

import numpy as np
import pytest
import torch

from sidr_rag import SiDR
from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.train.cotrain import CoTrainer, CoTraining, Question
from sidr_rag.train.readers import CausalReader, UnigramReader


@pytest.fixture
def questions(shared_data):
    """Real questions with answers and the passages that they were asked of, and as many other passages."""
    path = shared_data / "train" / "nq_dev.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line, _ in zip(file, range(300), strict=False)]
    asked = [r for r in records if r.get("answers") and len(r["text"].split()) < 120][:48]
    texts = list(dict.fromkeys(r["text"] for r in records))
    return texts, [Question(r["query"], tuple(r["answers"])) for r in asked]


def test_the_readers_loss_falls_and_the_index_stays(questions, tmp_path):
    texts, asked = questions
    reader = UnigramReader(texts)
    with SiDR.from_texts(texts, path=tmp_path / "store", weighting="binary") as sidr:
        before = sidr.info()
        files = {p: p.stat().st_mtime_ns for p in (tmp_path / "store").rglob("*.seg*")}
        trainer = CoTrainer(sidr, reader, "default", CoTraining(batch=16, m=6, learning_rate=1e-4))
        first = trainer.reader_loss(asked)
        history = trainer.train(asked, 9)
        last = trainer.reader_loss(asked)
        assert last < first - 0.1
        assert all(math.isfinite(h["loss"]) for h in history)
        assert sidr.info() == before
        assert {p: p.stat().st_mtime_ns for p in files} == files
        folder = trainer.save(tmp_path / "model")
    with SiDR.open(tmp_path / "store", model=folder, weighting="binary") as sidr:
        assert sidr.search(asked[0].text, k=1)
        assert sidr.info()["encoder"] != before["encoder"]
        assert sidr.info()["index_bytes"] == before["index_bytes"]


@pytest.mark.parametrize("dense", [True, False])
def test_the_dense_head_is_carried_over_where_there_is_one(tiny_base, tmp_path, dense):
    shutil.copytree(tiny_base, tmp_path / "base")
    described = json.loads((tiny_base / "config.json").read_text(encoding="utf-8"))
    described["dense"] = {"pooling": "mean", "normalize": True} if dense else None
    (tmp_path / "base" / "config.json").write_text(json.dumps(described), encoding="utf-8")
    with SiDR.from_texts(["a1 a2", "a3 a4"], model=tmp_path / "base", backend="numpy", weighting="binary") as sidr:
        trainer = CoTrainer(sidr, UnigramReader(["a1 a2"]), tmp_path / "base", CoTraining(m=2))
        saved = trainer.save(tmp_path / "out")
    assert (load_encoder(saved, backend="numpy").config.dense is not None) is dense


@pytest.mark.parametrize("loss", ["kl", "marginal"])
def test_a_question_that_finds_nothing_does_no_harm(loss):
    with SiDR.from_texts(["a heart pumps blood", "copper conducts"], weighting="binary") as sidr:
        reader = UnigramReader(["a heart pumps blood"])
        trainer = CoTrainer(sidr, reader, settings=CoTraining(m=2, loss=loss))
        found = trainer.step([Question("", ("blood",)), Question("what does a heart pump", ("blood",))])
        assert math.isfinite(found["loss"])
        assert math.isfinite(trainer.step([Question("", ("blood",))])["loss"])


def test_the_unigram_reader_by_hand():
    reader = UnigramReader(["x y", "x z"], background=0.5)
    total = 4 + 3 + 1
    expected = [
        math.log(0.5 * 1 / 2 + 0.5 * (2 + 1) / total),
        math.log(0.5 * 0 + 0.5 * (2 + 1) / total),
    ]
    np.testing.assert_allclose(reader.log_likelihoods("?", ["x y", "q q"], ["X"]), expected, rtol=1e-6)
    best = reader.log_likelihoods("?", ["x y"], ["x", "missing words"])
    np.testing.assert_allclose(best, expected[:1], rtol=1e-6)
    with pytest.raises(InvalidInputError, match="answers"):
        reader.log_likelihoods("?", ["x"], [" "])
    with pytest.raises(InvalidInputError, match="background"):
        UnigramReader([], background=1.0)


class WordTokenizer:
    """Ids by word, as transformers' tokenizers answer."""

    def __call__(self, text, add_special_tokens=False):
        return {"input_ids": [sum(map(ord, w)) % 50 for w in text.split()]}


def test_a_causal_model_reads_the_answer_after_the_prompt():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_positions=40, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).eval()
    reader = CausalReader(model, WordTokenizer(), prompt="{passage} Q {question} A", max_tokens=20, batch=2)
    passages = ["one two three", "one", "w " * 30]
    got = reader.log_likelihoods("who did", passages, ["it was", "me"])
    tokens = WordTokenizer()

    def alone(passage, answer):
        target = tokens(answer)["input_ids"]
        head = tokens(passage)["input_ids"][: 20 - 4 - len(target)]
        ids = torch.tensor([[*head, *tokens("Q who did A")["input_ids"], *target]])
        with torch.no_grad():
            logs = torch.log_softmax(model(input_ids=ids).logits[0], dim=-1)
        places = range(ids.shape[1] - len(target), ids.shape[1])
        return np.mean([float(logs[p - 1, ids[0, p]]) for p in places])

    expected = [max(alone(p, "it was"), alone(p, "me")) for p in passages]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    with pytest.raises(InvalidInputError, match="max_tokens"):
        CausalReader(model, WordTokenizer(), max_tokens=3).log_likelihoods("who", ["x"], ["a b"])
