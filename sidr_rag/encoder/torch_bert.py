"""BERT and its vocabulary heads in torch, on CPU or CUDA: the same function of the same weights as `numpy_bert`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.numpy_bert import vocabulary_rows
from sidr_rag.errors import InvalidInputError

# Elements of a [tokens, dimensions] block of logits held at once: 8 MB in float32 on CPU (its caches), 512 MB on CUDA.
_LOGIT_BLOCK_CPU = 1 << 21
_LOGIT_BLOCK_CUDA = 1 << 27


def elu1p(x: Tensor) -> Tensor:
    """The paper's activation (eq. elu1p): x + 1 where x >= 0, else e^x; any shape."""
    return F.elu(x) + 1


def log1p_relu(x: Tensor) -> Tensor:
    """SPLADE's activation: log(1 + max(x, 0)); any shape."""
    return torch.log1p(F.relu(x))


def compute_dtype(device: torch.device, dtype: str) -> torch.dtype:
    """The type of the matrix products; "auto" is bfloat16 where the processor multiplies it, else float32."""
    if dtype == "bfloat16":
        return torch.bfloat16
    if dtype == "float32":
        return torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float32
    return torch.bfloat16 if _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    # Private names of torch: absent ones count as no.
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(probe() for name in probes if (probe := getattr(torch.cpu, name, None)) is not None)


class TorchBert:
    """One side's encoder. Immutable once built, so threads may share it.

    Hidden states and LayerNorms stay in float32; matrix products and attention run in the compute type.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; in float32 on CPU their memory is shared.
        config: the model's configuration; `config.native` must hold.
        token_ids: i32[dim], the token id of every dimension.
        device: where it runs.
        dtype: "auto", "float32" or "bfloat16".
    """

    def __init__(
        self, weights: Weights, config: ModelConfig, token_ids: NDArray[np.int32], device: torch.device, dtype: str
    ) -> None:
        if config.bert is None:
            raise InvalidInputError(f"model: a {config.architecture!r} is run by transformers, not by TorchBert")
        self._sizes = config.bert
        self._mlm = config.head == "mlm"
        self._head_eps = config.head_layer_norm_eps
        self._device = device
        self._dtype = compute_dtype(device, dtype)
        cuda = device.type == "cuda"
        self.batch_tokens = 1 << 16 if cuda else 1 << 12
        self._logit_block = _LOGIT_BLOCK_CUDA if cuda else _LOGIT_BLOCK_CPU
        self._weights = {
            name: self._to_device(array, narrow=_is_linear(name))
            for name, array in weights.items()
            if name not in ("mlm.decoder.weight", "mlm.bias", "logit_bias")
        }
        decoder = weights.get("mlm.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._projection = self._to_device(vocabulary_rows(decoder, token_ids), narrow=True)
        bias = weights.get("logit_bias", np.zeros((), dtype=np.float32))
        if self._mlm:
            bias = bias + weights["mlm.bias"][token_ids]
        self._bias = self._to_device(np.asarray(bias, dtype=np.float32), narrow=False)

    @property
    def dtype(self) -> str:
        """The type of the matrix products: "float32" or "bfloat16"."""
        return str(self._dtype).removeprefix("torch.")

    def _to_device(self, array: NDArray[np.float32], *, narrow: bool) -> Tensor:
        writable = array if array.flags.writeable else array.copy()
        return torch.from_numpy(writable).to(self._device, self._dtype if narrow else torch.float32)

    def pooled_logits(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vocabulary logits, max-pooled over each sequence's tokens, [CLS] and [SEP] included; padding is masked.

        The activation is increasing, so pooling before it equals the paper's pooling after it.

        Args:
            sequences: token ids with [CLS] and [SEP]; each at least one and at most `max_position_embeddings` long.

        Returns:
            f32[len(sequences), dim].
        """
        lengths = [len(sequence) for sequence in sequences]
        longest = max(lengths)
        padded = np.zeros((len(sequences), longest), dtype=np.int64)
        for i, sequence in enumerate(sequences):
            padded[i, : lengths[i]] = sequence
        with torch.inference_mode():
            ids = torch.from_numpy(padded).to(self._device)
            real = None
            if min(lengths) < longest:
                real = torch.arange(longest, device=self._device) < torch.tensor(lengths, device=self._device)[:, None]
            hidden = self._head(self._body(ids, real))
            if real is not None:
                # A padding position that repeats the first token's state cannot change a maximum.
                hidden = torch.where(real[:, :, None], hidden, hidden[:, :1])
            pooled: NDArray[np.float32] = self._pool(hidden).cpu().numpy()
        return pooled

    def _body(self, ids: Tensor, real: Tensor | None) -> Tensor:
        """Last hidden states: f32[batch, tokens, hidden]."""
        w, eps = self._weights, self._sizes.layer_norm_eps
        hidden = F.embedding(ids, w["embeddings.word_embeddings.weight"])
        hidden = hidden + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        hidden = hidden + w["embeddings.token_type_embeddings.weight"][0]
        hidden = self._layer_norm(hidden, "embeddings.LayerNorm", eps)
        mask = None if real is None else real[:, None, None, :]
        for i in range(self._sizes.num_hidden_layers):
            layer = f"encoder.layer.{i}"
            attended = self._linear(
                self._attention(hidden, mask, f"{layer}.attention.self"), f"{layer}.attention.output.dense"
            )
            hidden = self._layer_norm(attended.float() + hidden, f"{layer}.attention.output.LayerNorm", eps)
            inner = F.gelu(self._linear(hidden, f"{layer}.intermediate.dense"))
            output = self._linear(inner, f"{layer}.output.dense")
            hidden = self._layer_norm(output.float() + hidden, f"{layer}.output.LayerNorm", eps)
        return hidden

    def _attention(self, hidden: Tensor, mask: Tensor | None, name: str) -> Tensor:
        batch, tokens, width = hidden.shape
        narrow = hidden.to(self._dtype)
        query, key, value = (
            self._linear(narrow, f"{name}.{part}")
            .view(batch, tokens, self._sizes.num_attention_heads, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return context.transpose(1, 2).reshape(batch, tokens, width)

    def _head(self, hidden: Tensor) -> Tensor:
        if not self._mlm:
            return self._layer_norm(hidden, "ln", self._head_eps)
        hidden = F.gelu(self._linear(hidden, "mlm.dense")).float()
        return self._layer_norm(hidden, "mlm.LayerNorm", self._head_eps)

    def _pool(self, hidden: Tensor) -> Tensor:
        """f32[batch, tokens, hidden] -> f32[batch, dim], in blocks of dimensions."""
        batch, tokens, _ = hidden.shape
        dim = self._projection.shape[0]
        narrow = hidden.to(self._dtype)
        pooled = torch.empty((batch, dim), dtype=torch.float32, device=self._device)
        rows = max(1, self._logit_block // (tokens * 1024))
        for first in range(0, batch, rows):
            part = narrow[first : first + rows]
            width = max(256, self._logit_block // (part.shape[0] * tokens))
            for start in range(0, dim, width):
                logits = F.linear(part, self._projection[start : start + width])
                pooled[first : first + rows, start : start + width] = logits.amax(dim=1)
        return pooled + self._bias

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x.to(self._dtype), self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _layer_norm(self, x: Tensor, name: str, eps: float) -> Tensor:
        w = self._weights
        return F.layer_norm(x, (x.shape[-1],), w[f"{name}.weight"], w[f"{name}.bias"], eps)


def _is_linear(name: str) -> bool:
    return name.startswith(("encoder.", "mlm.dense.")) and "LayerNorm" not in name


def torch_device(name: str) -> torch.device:
    """The torch device of that name: "cpu", "cuda" or "cuda:N"; "auto" is CUDA where there is one.

    Raises:
        InvalidInputError: if CUDA is asked for and absent.
    """
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not (available and (device.index or 0) < torch.cuda.device_count()):
        raise InvalidInputError(f"device is {name!r}, but torch finds no such CUDA device here; use 'cpu' or 'auto'")
    return device
