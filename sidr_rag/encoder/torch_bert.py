"""BERT's vocabulary heads in torch, on CPU or CUDA: the same function of the same weights as `numpy_bert`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.numpy_bert import vocabulary_rows
from sidr_rag.encoder.sparsify import Row
from sidr_rag.encoder.torch_body import Pack, TorchBody, cpu_multiplies_bfloat16
from sidr_rag.encoder.torch_body import compute_dtype as compute_dtype
from sidr_rag.encoder.torch_body import torch_device as torch_device
from sidr_rag.errors import InvalidInputError

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Summarized

# Elements of a [tokens, dimensions] block of logits held at once: 4 MB in float32 on CPU (its caches), 512 MB on CUDA.
_LOGIT_BLOCK_CPU = 1 << 20
_LOGIT_BLOCK_CUDA = 1 << 27
_SCREEN_WIDTH = 512
_KERNEL_ROWS = 64
_HALF_ULP = 2.0**-8  # bfloat16 rounds to within this share of a number
_SUMMATION = 2.0**-14  # float32 sums of some hundred products stay within this share of the norms' product


def elu1p(x: Tensor) -> Tensor:
    """The paper's activation (eq. elu1p): x + 1 where x >= 0, else e^x; any shape."""
    return F.elu(x) + 1


def log1p_relu(x: Tensor) -> Tensor:
    """SPLADE's activation: log(1 + max(x, 0)); any shape."""
    return torch.log1p(F.relu(x))


class TorchBert:
    """One side's encoder. Immutable once built, so threads may share it.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; in float32 on CPU most of their memory is shared.
        config: the model's configuration; `config.native` must hold.
        token_ids: i32[dim], the token id of every dimension.
        device: where it runs.
        dtype: "auto", "float32" or "bfloat16".

    Attributes:
        body: the same encoder without its vocabulary head.
        screens: whether `best_logits` is worth its while: float32 is wanted of a processor that multiplies bfloat16
            several times faster.
    """

    def __init__(
        self, weights: Weights, config: ModelConfig, token_ids: NDArray[np.int32], device: torch.device, dtype: str
    ) -> None:
        if config.bert is None:
            raise InvalidInputError(f"model: a {config.architecture!r} is run by transformers, not by TorchBert")
        self.body = TorchBody(weights, config.bert, device, dtype)
        self.batch_tokens = self.body.batch_tokens
        self._pooling = config.dense.pooling if config.dense else None
        self._mlm = config.head == "mlm"
        self._head_eps = config.head_layer_norm_eps
        self._device = device
        self._dtype = self.body.compute
        cuda = device.type == "cuda"
        self._logit_block = _LOGIT_BLOCK_CUDA if cuda else _LOGIT_BLOCK_CPU
        self._weights = {
            name: self.body.placed(array, narrow=name.startswith("mlm.dense."))
            for name, array in weights.items()
            if name.startswith(("ln.", "mlm.dense.", "mlm.LayerNorm."))
        }
        decoder = weights.get("mlm.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._projection = self.body.placed(vocabulary_rows(decoder, token_ids), narrow=True)
        bias = weights.get("logit_bias", np.zeros((), dtype=np.float32))
        if self._mlm:
            bias = bias + weights["mlm.bias"][token_ids]
        self._bias = self.body.placed(np.broadcast_to(bias, token_ids.shape).astype(np.float32), narrow=False)
        self.screens = not cuda and self._dtype == torch.float32 and cpu_multiplies_bfloat16()
        if self.screens:
            self._rounded = self._projection.bfloat16()
            self._norms = self._projection.norm(dim=1)
            self._losses = (self._rounded.float() - self._projection).norm(dim=1)

    @property
    def dtype(self) -> str:
        """The type of the matrix products: "float32" or "bfloat16"."""
        return str(self._dtype).removeprefix("torch.")

    def pooled_logits(
        self, sequences: Sequence[Sequence[int]], summarized: Summarized | None = None
    ) -> NDArray[np.float32]:
        """Vocabulary logits, max-pooled over each sequence's tokens, [CLS] and [SEP] included; padding is masked.

        The activation is increasing, so pooling before it equals the paper's pooling after it.

        Args:
            sequences: token ids with [CLS] and [SEP]; each at least one and at most `max_position_embeddings` long.
            summarized: told what the body makes of them, if the model has a dense head.

        Returns:
            f32[len(sequences), dim].
        """
        with torch.inference_mode():
            hidden = self._head(self._packed(sequences, summarized))
            pooled: NDArray[np.float32] = self._pool(hidden).cpu().numpy()
        return pooled

    def best_logits(
        self,
        sequences: Sequence[Sequence[int]],
        own: Sequence[NDArray[np.int32]],
        k: int,
        summarized: Summarized | None = None,
    ) -> list[Row]:
        """Those of `pooled_logits` that can be among a sequence's k greatest, and those of its own dimensions.

        Logits of bfloat16 products, which this processor makes several times faster, differ from the exact ones by no
        more than a bound; the dimensions that the bound leaves open are computed in float32.

        Args:
            sequences: as for `pooled_logits`.
            own: for each sequence, dimensions that are wanted in any case.
            k: how many of the greatest are wanted; 0 for the own ones alone.
            summarized: as for `pooled_logits`.

        Returns:
            for each sequence dims i32[n], ascending, and logits f32[n]; the k greatest are among them, ties included.

        Raises:
            InvalidInputError: if a logit is not finite, as after loading damaged weights.
        """
        with torch.inference_mode():
            hidden = self._head(self._packed(sequences, summarized))
            chosen = self._candidates(hidden, k) if k else [np.empty(0, np.int32)] * len(sequences)
            rows = []
            for i, sequence in enumerate(sequences):
                dims = np.union1d(chosen[i], own[i]).astype(np.int32)
                # Filled up to whole kernels, whose sums do not depend on how many dimensions there are.
                places = torch.zeros(-(-len(dims) // _KERNEL_ROWS) * _KERNEL_ROWS, dtype=torch.int64)
                places[: len(dims)] = torch.from_numpy(dims.astype(np.int64))
                logits = F.linear(hidden[i, : len(sequence)], self._projection[places]).amax(dim=0)
                rows.append((dims, (logits + self._bias[places])[: len(dims)].numpy()))
        return rows

    def _candidates(self, hidden: Tensor, k: int) -> list[NDArray[np.int32]]:
        """For each sequence the dimensions whose logit may be among the k greatest."""
        narrow = hidden.bfloat16()
        near = torch.empty((len(hidden), len(self._rounded)), dtype=torch.bfloat16)
        for start in range(0, len(self._rounded), _SCREEN_WIDTH):
            near[:, start : start + _SCREEN_WIDTH] = F.linear(
                narrow, self._rounded[start : start + _SCREEN_WIDTH]
            ).amax(dim=1)
        logits = near.float()
        if not torch.isfinite(logits).all():
            raise InvalidInputError("model: its logits are not all finite; the weights are damaged, fetch them anew")
        # |<h, e> - <h', e'>| <= |h - h'| |e| + |h'| |e - e'|, then the rounding of sum and result; the maximum over
        # tokens moves no more than its terms.
        states = narrow.float()
        reach = states.norm(dim=-1).amax(dim=1)
        loss = (states - hidden).norm(dim=-1).amax(dim=1)
        slack = loss[:, None] * self._norms + reach[:, None] * (self._losses + _SUMMATION * self._norms)
        slack += _HALF_ULP * (logits.abs() + slack)
        logits = logits + self._bias
        least = torch.topk(logits - slack, min(k, logits.shape[1]), dim=1).values[:, -1:]
        open_ = (logits + slack >= least).numpy()
        return [np.flatnonzero(row).astype(np.int32) for row in open_]

    def _packed(self, sequences: Sequence[Sequence[int]], summarized: Summarized | None) -> Pack:
        pack = self.body.pack(sequences)
        if summarized is not None and self._pooling is not None:
            summarized(self.body.summaries_of(pack, self._pooling), lambda: self.body.states_of(pack))
        return pack

    def _head(self, pack: Pack) -> Tensor:
        """What the projection multiplies, f32[batch, tokens, hidden]."""
        hidden = pack.states
        if self._mlm:
            w = self._weights
            inner = F.linear(hidden.to(self._dtype), w["mlm.dense.weight"], w["mlm.dense.bias"])
            hidden = self._layer_norm(F.gelu(inner).float(), "mlm.LayerNorm")
        else:
            hidden = self._layer_norm(hidden, "ln")
        if pack.real is not None:
            # A padding position that repeats the first token's state cannot change a maximum.
            hidden = torch.where(pack.real[:, :, None], hidden, hidden[:, :1])
        return hidden

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

    def _layer_norm(self, x: Tensor, name: str) -> Tensor:
        w = self._weights
        return F.layer_norm(x, (x.shape[-1],), w[f"{name}.weight"], w[f"{name}.bias"], self._head_eps)
