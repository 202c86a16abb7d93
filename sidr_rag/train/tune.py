"""Chooses a finished model's constants on dev sets: those of the corpus-weighted search, and the late blend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.model_tokenizer import load_tokenizer
from sidr_rag.encoder.torch_body import compute_dtype
from sidr_rag.errors import InvalidInputError
from sidr_rag.rerank.second import first_share
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.binary_layers import binary_state
from sidr_rag.train.dev import DevEvaluation, EncodedSet, reordered
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.sections import Corpus, Dev
from sidr_rag.train.texts import TextReader
from sidr_rag.train.weights_io import initial_state, load_state, model_config, own_shape, replace_file

ACTIVE_DIMS = (32, 64, 128)
_LEAST_GAIN = 2e-4
_BLENDS = tuple(i / 20 for i in range(21))


@dataclass(frozen=True)
class Tuned:
    """What was chosen, and the mean dev nDCG@10 that it gives.

    Attributes:
        weighting: constants of the corpus-weighted beta search.
        active_dims: of query vectors.
        first_stage: of beta search with these constants.
        binary_dims: active dimensions of query vectors in binary beta search.
        binary: of that search.
        blend: the model's `rerank_blend`, see `sidr_rag.rerank.second.first_share`; None where the second stage was not
            looked at.
        late: of late search with it.
    """

    weighting: Weighting
    active_dims: int
    first_stage: float
    binary_dims: int
    binary: float
    blend: float | None = None
    late: float | None = None


def tune(
    folder: Path,
    dev: Dev,
    *,
    active_dims: Sequence[int] = ACTIVE_DIMS,
    binary_dims: Sequence[int] = (8, 16, 32, 64),
    candidates: int = 100,
    dtype: str = "auto",
    write: bool = True,
    show: Callable[[str], None] = print,
) -> Tuned:
    """Choose constants by mean nDCG@10 over the dev sets, and write them into the model's config.json.

    A pattern search from the model's own constants: one constant at a time up and down, steps halved when nothing
    helps. Passages are encoded only for the blend, the candidates of every question once, for the second stage that
    late search takes with this model.

    Args:
        folder: a model in the library's own layout.
        dev: the sets.
        active_dims: active dimensions of query vectors to try.
        binary_dims: of them in binary search, to try; those above the chosen `active_dims` are left out.
        candidates: m of late search; 0 leaves the blend as it is.
        dtype: of the matrix products, "float32", "bfloat16" or "auto" (bfloat16 where the processor multiplies it).
        write: whether config.json is changed; its weights never are.
        show: where progress goes.

    Raises:
        InvalidInputError: if there is no dev set, or the model is not one of ours.
    """
    if not dev.sets:
        raise InvalidInputError("dev.sets is empty; constants can be chosen only on judged sets")
    config = load_config(folder)
    if config.layout != "sidr":
        raise InvalidInputError(f"model: {folder} is of layout {config.layout!r}; give a folder that training wrote")
    shaped = model_config(folder, own_shape(folder), config.name)
    tokenizer = load_tokenizer(folder, shaped, "nfkc")
    reader = TextReader(tokenizer, shaped)
    ids = torch.from_numpy(reader.token_ids.astype(np.int64))
    sides: tuple[Side, ...] = ("query", "passage")
    encoders = [_loaded(shaped, ids, initial_state(folder, shaped, side, 0.0), dtype) for side in sides]
    start = Weighting.from_mapping(config.weighting) if config.weighting else Corpus().start
    own = config.reranker or ("theta" if config.dense is None else "dense")
    evaluation = DevEvaluation(dev, tokenizer, reader, start.levels, shaped, own=own)
    best: tuple[float, int, Weighting, list[EncodedSet]] | None = None
    for k in active_dims:
        sets = evaluation.encoded(encoders[0], k)
        weighting, value = climbed(start, lambda w, sets=sets: _mean(sets, w))  # type: ignore[misc]
        show(f"{k} active dimensions: beta {100 * value:.2f} with {weighting.to_mapping()}")
        if best is None or value > best[0]:
            best = (value, k, weighting, sets)
    if best is None:
        raise InvalidInputError("active_dims is empty; give at least one number")
    value, k, weighting, sets = best
    if config.binary_layers:
        reads_binary = _loaded(shaped, ids, binary_state(folder), dtype)
        binary_sets = evaluation.encoded(reads_binary, k)
    else:
        binary_sets = sets
    by_dims = {dims: _binary(binary_sets, dims) for dims in {k, *(dims for dims in binary_dims if dims < k)}}
    show("binary: " + "  ".join(f"{dims} {100 * by_dims[dims]:.2f}" for dims in sorted(by_dims)))
    cut = max(by_dims, key=lambda dims: by_dims[dims])
    tuned = Tuned(weighting, k, value, cut, by_dims[cut])
    if candidates:
        by_blend = _late(evaluation, encoders[1], sets, weighting, candidates, own)
        blend = max(by_blend, key=lambda b: by_blend[b])
        tuned = replace(tuned, blend=blend, late=by_blend[blend])
        show("late: " + "  ".join(f"{b:.2f} {100 * v:.2f}" for b, v in by_blend.items()))
    if write:
        _write(folder, tuned)
    return tuned


def _loaded(
    config: ModelConfig, ids: torch.Tensor, state: dict[str, NDArray[np.float32]], dtype: str
) -> TrainableEncoder:
    encoder = TrainableEncoder(config, ids, 0.0, compute_dtype(torch.device("cpu"), dtype))
    load_state(encoder, state)
    return encoder.eval()


def climbed(start: Weighting, value_of: Callable[[Weighting], float], rounds: int = 3) -> tuple[Weighting, float]:
    """The best constants that one-at-a-time moves from `start` reach, and their value.

    Args:
        start: where to begin.
        value_of: what is to be as large as possible.
        rounds: how often the steps are halved, and one more.
    """
    best, value = start, value_of(start)
    for round_ in range(rounds):
        size = 0.5**round_
        moved = True
        while moved:
            moved = False
            for candidate in _neighbours(best, size):
                found = value_of(candidate)
                if found > value + _LEAST_GAIN:
                    best, value, moved = candidate, found, True
                    break
    return best, value


def _neighbours(w: Weighting, size: float) -> Iterator[Weighting]:
    factor = 1 + 0.5 * size

    def rounded(x: float) -> float:
        return float(f"{x:.4g}")

    for i in range(1, len(w.gains)):
        for by in (factor, 1 / factor):
            yield replace(w, gains=(*w.gains[:i], rounded(w.gains[i] * by), *w.gains[i + 1 :]))
    if w.theta_blend:
        expansion = w.theta_blend if w.expansion_blend is None else w.expansion_blend
        for by in (factor, 1 / factor):
            yield replace(w, theta_blend=rounded(w.theta_blend * by), expansion_blend=rounded(expansion * by))
            yield replace(w, theta_blend=rounded(w.theta_blend * by), expansion_blend=expansion)
            yield replace(w, expansion_blend=rounded(expansion * by))
    for by in (0.2 * size, -0.2 * size):
        if w.idf_exponent + by >= 0:
            yield replace(w, idf_exponent=rounded(w.idf_exponent + by))
        if w.length_exponent + by >= 0:
            yield replace(w, length_exponent=rounded(w.length_exponent + by))
        if 0 <= w.length_slope + by <= 1:
            yield replace(w, length_slope=rounded(w.length_slope + by))


def _mean(sets: Sequence[EncodedSet], weighting: Weighting) -> float:
    return float(np.mean([one.ndcg(one.weighted(weighting)) for one in sets]))


def _binary(sets: Sequence[EncodedSet], dims: int) -> float:
    return float(np.mean([one.ndcg(one.binary(dims)) for one in sets]))


def _late(
    evaluation: DevEvaluation,
    passage: TrainableEncoder,
    sets: Sequence[EncodedSet],
    weighting: Weighting,
    candidates: int,
    own: str,
) -> dict[float, float]:
    """Mean dev nDCG@10 of late search by the model's blend."""
    by_set = []
    for one in sets:
        first = one.weighted(weighting, candidates)
        second = evaluation.second_stage(passage, one, first, weighting)
        by_set.append(
            [
                one.ndcg(
                    [
                        reordered(hits, scores, first_share(blend, own))
                        for hits, scores in zip(first, second, strict=True)
                    ]
                )
                for blend in _BLENDS
            ]
        )
    return dict(zip(_BLENDS, np.mean(by_set, axis=0).tolist(), strict=True))


def _write(folder: Path, tuned: Tuned) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    described["weighting"] = tuned.weighting.to_mapping()
    if isinstance(described.get("max_active_dims"), dict):
        described["max_active_dims"]["query"] = tuned.active_dims
    described["binary_active_dims"] = tuned.binary_dims
    if tuned.blend is not None:
        described["rerank_blend"] = tuned.blend
    replace_file(path, (json.dumps(described, indent=2) + "\n").encode())
