"""How fast passages are embedded, beside a plain Hugging Face forward of the same model in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data import cut_passages, few_passages, few_questions, questions
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.searchers.base import peer
from sidr_rag import SiDR
from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.encoder.checkpoint import load_weights
from sidr_rag.encoder.resolve import DEFAULT_FOLDER

_N = 100
_BATCH = 32
_PEAK_SIZE = 1024


@dataclass(frozen=True)
class Speed:
    """One way of embedding.

    Attributes:
        name: of the way.
        per_second: passages per CPU second.
        share: of the processor's measured float32 peak: the arithmetic of the plain forward, by the time taken.
    """

    name: str
    per_second: float
    share: float


@dataclass(frozen=True)
class Speeds:
    """What was measured.

    Attributes:
        ways: by name.
        peak: 10^9 operations of float32 matrix products per CPU second.
        tokens: of a passage, mean.
        warm_ms: milliseconds (CPU, wall) of one search that re-ranks 100 passages whose embeddings are kept, by the
            second stage.
    """

    ways: list[Speed]
    peak: float
    peak_bfloat16: float
    tokens: float
    warm_ms: dict[str, tuple[float, float]]


def main() -> None:
    """Measure, and write the result."""
    arguments = (parser := make_parser(__doc__, rounds=5)).parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds} is less than 1")
    result = _result(measure_speed(small=arguments.small, rounds=arguments.rounds), arguments.rounds)
    if arguments.small:
        result.show()
    else:
        result.write()


def measure_speed(*, small: bool, rounds: int) -> Speeds:
    """Embed 100 passages of 100 words in every way, in turns, and keep the median of each."""
    torch = peer("torch", "torch")
    torch.set_num_threads(1)
    texts = few_passages(20) if small else [t for t in cut_passages(4 * _N) if len(t.split()) == 100][:_N]
    exact, narrow, plain = (
        load_encoder(device="cpu", backend=backend, dtype=dtype)
        for backend, dtype in (("torch", "float32"), ("torch", "bfloat16"), ("numpy", "float32"))
    )
    hugging_face = _HuggingFace(torch, exact)
    ways: dict[str, Callable[[Sequence[str]], object]] = {
        "Hugging Face, float32, padded, full logits": lambda t: hugging_face.embed(t, torch.float32),
        "sidr-rag, torch, float32": exact.encode_passages,
        "sidr-rag, NumPy, float32": plain.encode_passages,
        "Hugging Face, bfloat16, padded, full logits": lambda t: hugging_face.embed(t, torch.bfloat16),
        "sidr-rag, torch, bfloat16": narrow.encode_passages,
    }
    tokens = float(np.mean([len(exact.tokenizer.sequence_ids(t)) + 2 for t in texts]))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for embed in ways.values():
        embed(texts[:8])
    for _ in range(rounds):
        for name, embed in ways.items():
            taken[name].append(_cpu(lambda embed=embed: embed(texts)))  # type: ignore[misc]
    peak = _peak(torch, torch.float32)
    per_second = {name: len(texts) / float(np.median(seconds)) for name, seconds in taken.items()}
    work = _operations(exact, tokens)
    return Speeds(
        [Speed(name, rate, rate * work / peak) for name, rate in per_second.items()],
        peak / 1e9,
        _peak(torch, torch.bfloat16) / 1e9,
        tokens,
        _warm_ms(*((texts, few_questions(5)) if small else (cut_passages(2000), questions(20)))),
    )


class _HuggingFace:
    """V_theta as one would write it with transformers: batches in the order given, padded, every logit at once."""

    def __init__(self, torch: Any, encoder: Encoder) -> None:
        transformers = peer("transformers", "transformers")
        config = encoder.config
        assert config.bert is not None
        weights = {k: torch.from_numpy(v.copy()) for k, v in load_weights(DEFAULT_FOLDER, config, "passage").items()}
        sizes = {**config.bert.__dict__}
        model = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
        body = {k: v for k, v in weights.items() if k.startswith(("embeddings.", "encoder."))}
        model.load_state_dict(body)
        norm = torch.nn.LayerNorm(config.bert.hidden_size, eps=config.head_layer_norm_eps)
        norm.load_state_dict({"weight": weights["ln.weight"], "bias": weights["ln.bias"]})
        self._torch = torch
        self._bias = float(weights.get("logit_bias", torch.zeros(1)))
        self._k = config.max_active_dims["passage"]
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(DEFAULT_FOLDER / "tokenizer.json"), pad_token="[PAD]"
        )
        table = weights["embeddings.word_embeddings.weight"]
        self._parts = {
            dtype: (_copy(torch, model, dtype), _copy(torch, norm, dtype), table.to(dtype))
            for dtype in (torch.float32, torch.bfloat16)
        }

    def embed(self, texts: Sequence[str], dtype: Any) -> Any:
        torch = self._torch
        model, norm, table = self._parts[dtype]
        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), _BATCH):
                batch = self._tokenizer(
                    list(texts[start : start + _BATCH]),
                    padding=True,
                    truncation=True,
                    max_length=256,
                    return_tensors="pt",
                )
                logits = norm(model(**batch).last_hidden_state) @ table.t() + self._bias
                logits = logits.masked_fill(batch["attention_mask"][:, :, None] == 0, -1e9).amax(dim=1)
                found.append(torch.topk(torch.nn.functional.elu(logits.float()) + 1, self._k))
        return found


def _copy(torch: Any, module: Any, dtype: Any) -> Any:
    import copy

    return copy.deepcopy(module).eval().to(dtype)


def _operations(encoder: Encoder, tokens: float) -> float:
    """Multiplications and additions of a passage's matrix products: layers, attention and projection."""
    sizes = encoder.config.bert
    assert sizes is not None
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    layer = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * tokens * hidden
    return tokens * (sizes.num_hidden_layers * layer + 2 * hidden * encoder.dim)


def _peak(torch: Any, dtype: Any) -> float:
    """Operations per CPU second of a large matrix product, the best of several."""
    matrix = torch.rand(_PEAK_SIZE, _PEAK_SIZE).to(dtype)
    best = min(_cpu(lambda: matrix @ matrix) for _ in range(10))
    return 2 * float(_PEAK_SIZE) ** 3 / best


def _warm_ms(texts: Sequence[str], asked: Sequence[str]) -> dict[str, tuple[float, float]]:
    found = {}
    with SiDR.from_texts(texts, num_threads=1) as sidr:
        for name, reranker in (("V_theta", "theta"), ("the model's own way", None)):
            cpu, wall = [], []
            for query in asked:
                sidr.search(query, rerank=100, reranker=reranker)
                start, before = time.perf_counter(), time.process_time()
                sidr.search(query, rerank=100, reranker=reranker)
                cpu.append(time.process_time() - before)
                wall.append(time.perf_counter() - start)
            found[name] = 1000 * float(np.median(cpu)), 1000 * float(np.median(wall))
    return found


def _cpu(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _result(speeds: Speeds, rounds: int) -> Result:
    result = Result(
        "late_speed",
        "Speed of embedding, for late search",
        [
            f"Passages of 100 words ({speeds.tokens:.0f} tokens), CPU seconds of one thread, medians of {rounds} "
            "interleaved rounds. The peak is the best of ten products of square float32 matrices, "
            f"{speeds.peak:.0f} thousand million operations per CPU second ({speeds.peak_bfloat16:.0f} in bfloat16); a "
            "way's share of it counts the operations of the plain forward: screening in bfloat16 does fewer in "
            "float32.",
            "Warm: a search of 2,000 passages that re-ranks 100 whose embeddings are all kept; encoding the question "
            "is part of it.",
        ],
        ["a BertModel of transformers with the same weights, in batches of 32, padded, every logit at once"],
        ["numpy", "torch", "transformers"],
        "python -m benchmarks.late_speed",
        raw={"ways": [way.__dict__ for way in speeds.ways], "warm_ms": speeds.warm_ms},
    )
    plain, ours = speeds.ways[0].per_second, speeds.ways[1].per_second
    rows: list[list[Cell]] = [
        [w.name, w.per_second, 100_000 / w.per_second, w.per_second / plain, 100 * w.share] for w in speeds.ways
    ]
    columns = ("way", "passages per CPU second", "ms per 100 passages", "times the first", "% of the float32 peak")
    result.tables.append(Table("Embedding", columns, rows))
    result.musts += [
        Must("passages per second, times Hugging Face's padded forward, float32", ours / plain, 2.0, at_least=True),
    ]
    for second, (cpu, wall) in speeds.warm_ms.items():
        result.musts += [
            Must(f"re-ranking 100 passages by {second}, embeddings kept, CPU ms", cpu, 50.0),
            Must("the same, ms of wall clock", wall, 50.0),
        ]
    return result


if __name__ == "__main__":
    main()
