"""Teachers: a bi-encoder over every query and passage, and a cross-encoder over candidates; both kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sidr_rag.encoder.checkpoint import checkpoint_digest
from sidr_rag.encoder.config import ModelConfig, Pooling, Side
from sidr_rag.encoder.weight_files import open_weights
from sidr_rag.errors import InvalidInputError
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.sections import CrossTeacher, DenseTeacher
from sidr_rag.train.weights_io import initial_state, load_state, model_config, own_shape

Progress = Callable[[str, int, int], None]
Sequences = Callable[[int], list[int]]
_BLOCK = 512


class DenseModel:
    """A BERT used as a bi-encoder."""

    def __init__(
        self,
        model: Path,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | None = None,
        pooling: Pooling = "mean",
    ) -> None:
        config = _shape(model)
        self._pooling = pooling
        # The dense head needs no dimension of the vocabulary.
        self._encoder = TrainableEncoder(config, torch.arange(1), 0.0, dtype)
        load_state(self._encoder, initial_state(model, config, "query", 0.0))
        self._encoder.to(device or "cpu").eval()

    def vectors(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The pooled vectors of token sequences, of length 1: f32[n, hidden]."""
        with torch.inference_mode():
            encoded = self._encoder.encode(sequences)
            found = self._encoder.dense(encoded) if self._pooling == "mean" else self._encoder.first_states(encoded)
            vectors: NDArray[np.float32] = found.cpu().numpy()
        return vectors


class VectorCache:
    """f16 vectors of numbered texts in one .npy file, filled block by block; a killed run goes on where it was."""

    def __init__(self, path: Path, n: int, width: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._done_path = path.with_suffix(".done")
        if not path.exists():
            # Written under another name, so that a killed run leaves no file that looks whole.
            temporary = path.with_suffix(".tmp.npy")
            np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float16, shape=(n, width)).flush()
            temporary.replace(path)
            self._done_path.write_text("0", encoding="ascii")
        self.vectors = np.lib.format.open_memmap(path, mode="r+")
        if self.vectors.shape != (n, width):
            raise InvalidInputError(
                f"cache: {path} holds vectors {self.vectors.shape}, expected {(n, width)}; remove it"
            )

    @property
    def done(self) -> int:
        """How many texts have their vectors."""
        return int(self._done_path.read_text(encoding="ascii") or 0)

    def fill(self, compute: Callable[[int, int], NDArray[np.float32]], progress: Progress, label: str) -> None:
        """Compute what is missing: `compute(start, end)` gives f32[end - start, width]."""
        n = len(self.vectors)
        for start in range(self.done, n, _BLOCK):
            end = min(n, start + _BLOCK)
            self.vectors[start:end] = compute(start, end)
            self.vectors.flush()
            temporary = self._done_path.with_suffix(".next")
            temporary.write_text(str(end), encoding="ascii")
            temporary.replace(self._done_path)
            progress(label, end, n)


class DenseScores:
    """The dense teacher: cosines of the kept vectors; every pair is known.

    Args:
        queries: f16[examples, width].
        passages: f16[passages, width].
    """

    def __init__(self, queries: NDArray[np.float16], passages: NDArray[np.float16]) -> None:
        self._queries, self._passages = queries, passages

    def scores(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines f32[n, m] of each example with its passages; NaN at -1."""
        queries = self._queries[examples].astype(np.float32)
        passages = self._passages[np.maximum(pids, 0)].astype(np.float32)
        scores: NDArray[np.float32] = np.einsum("nh,nmh->nm", queries, passages)
        scores[pids < 0] = np.nan
        return scores

    def columns(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines f32[n, m] of every example with every one of the passages."""
        product: NDArray[np.float32] = (
            self._queries[examples].astype(np.float32) @ self._passages[pids].astype(np.float32).T
        )
        return product

    def vectors(self, numbers: NDArray[np.int64], side: Side) -> NDArray[np.float32]:
        """The vectors of examples ("query") or passages: f32[n, width]."""
        return (self._queries if side == "query" else self._passages)[numbers].astype(np.float32)

    def nearest(self, example: int, pids: NDArray[np.int64], m: int) -> NDArray[np.int64]:
        """The m passages among `pids` that are nearest to an example, best first."""
        scores = self._passages[pids].astype(np.float32) @ self._queries[example].astype(np.float32)
        order: NDArray[np.int64] = pids[np.argsort(-scores, kind="stable")[:m]]
        return order


def dense_scores(
    teacher: DenseTeacher,
    cache: Path,
    key: str,
    query_ids: Sequences,
    n_queries: int,
    passage_ids: Sequences,
    n_passages: int,
    progress: Progress,
    device: torch.device | None = None,
) -> DenseScores:
    """Compute, or read from the cache, the dense teacher's vectors of all queries and passages.

    Args:
        teacher: the model and how much of a text it reads.
        cache: the folder.
        key: the fingerprint of the texts.
        query_ids: number -> token ids with special ones.
        n_queries: how many there are.
        passage_ids: the same for passages.
        n_passages: how many there are.
        progress: called with a label, how many are done, and how many there are.
        device: where the model runs; None for the CPU.
    """
    how = [] if teacher.pooling == "mean" else [teacher.pooling]
    name = _digest(key, checkpoint_digest(teacher.model), str(teacher.max_length), *how)
    model: list[DenseModel] = []
    found = []
    for side, ids, n in (("queries", query_ids, n_queries), ("passages", passage_ids, n_passages)):

        def compute(start: int, end: int, ids: Sequences = ids) -> NDArray[np.float32]:
            if not model:
                model.append(DenseModel(teacher.model, device=device, pooling=teacher.pooling))
            return model[0].vectors([cut(ids(i), teacher.max_length) for i in range(start, end)])

        kept = VectorCache(cache / f"dense-{name}-{side}.npy", n, _width(_shape(teacher.model)))
        kept.fill(compute, progress, f"dense teacher, {side}")
        found.append(kept.vectors)
    return DenseScores(found[0], found[1])


def cut(ids: list[int], length: int) -> list[int]:
    """Token ids cut to a length, the closing special one kept."""
    return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]


def _shape(model: Path) -> ModelConfig:
    """The model's body, with a head of the kind that needs no weights."""
    return model_config(model, replace(own_shape(model), head="layernorm"), model.name)


def _width(config: ModelConfig) -> int:
    assert config.bert is not None
    return config.bert.hidden_size


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class CrossEncoder:
    """A BERT that reads query and passage together and gives one number: higher is more relevant.

    Weights may be float, or 8-bit with `NAME.scale` and `NAME.zero_point` (one value each).
    """

    def __init__(self, model: Path, dtype: torch.dtype = torch.bfloat16, device: torch.device | None = None) -> None:
        self._body = TrainableEncoder(_shape(model), torch.arange(1), 0.0, dtype)
        weights = _plain_weights(model)
        own = self._body.state_dict()
        body = {name: weights[f"bert.{name}"] for name in own if f"bert.{name}" in weights}
        lacking = [name for name in own if name not in body and not name.startswith(("ln.", "mlm.", "logit_bias"))]
        if lacking or "classifier.weight" not in weights or "bert.pooler.dense.weight" not in weights:
            raise InvalidInputError(f"distillation.cross.model: {model} is no BERT classifier with a pooler")
        self._body.load_state_dict(body, strict=False)
        self._body.to(device or "cpu").eval()
        self._pooler = _layer(weights, "bert.pooler.dense").to(device or "cpu")
        self._classifier = _layer(weights, "classifier").to(device or "cpu")

    def scores(self, queries: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One score for each pair: f32[n].

        Args:
            queries: token ids with both special ones.
            passages: token ids with the closing special one.
        """
        sequences = [[*q, *p] for q, p in zip(queries, passages, strict=True)]
        kinds = [[0] * len(q) + [1] * len(p) for q, p in zip(queries, passages, strict=True)]
        with torch.inference_mode():
            packs = self._body.encode(sequences, kinds)
            first = torch.cat([pack.hidden[:, 0] for pack in packs])
            places = torch.cat([pack.places for pack in packs])
            logits = self._classifier(torch.tanh(self._pooler(first)))[:, 0]
            scores: NDArray[np.float32] = logits[torch.argsort(places)].float().cpu().numpy()
        return scores


def _plain_weights(model: Path) -> dict[str, Tensor]:
    with open_weights(model) as files:
        raw = {name: files.tensor(name) for name in files.names()}
    plain = {}
    for name, value in raw.items():
        if name.endswith((".scale", ".zero_point")):
            continue
        array = value.astype(np.float32)
        if f"{name}.scale" in raw:
            array = (array - raw.get(f"{name}.zero_point", np.zeros(1)).astype(np.float32)) * raw[f"{name}.scale"]
        plain[name] = torch.from_numpy(array.astype(np.float32))
    return plain


def _layer(weights: dict[str, Tensor], name: str) -> nn.Linear:
    matrix = weights[f"{name}.weight"]
    layer = nn.Linear(matrix.shape[1], matrix.shape[0])
    layer.load_state_dict({"weight": matrix, "bias": weights[f"{name}.bias"]})
    return layer


def cross_name(teacher: CrossTeacher, key: str) -> str:
    """What the cached scores of this teacher over these texts are called."""
    parts = (str(teacher.candidates), str(teacher.max_length))
    return f"cross-{_digest(key, checkpoint_digest(teacher.model), *parts)}"
