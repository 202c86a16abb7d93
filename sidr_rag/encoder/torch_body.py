"""The body of BERT in torch, on CPU or CUDA: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import BertSizes
from sidr_rag.errors import InvalidInputError

_PARTS = ("query", "key", "value")
# On CPU a batch's inner states should stay in the caches; on CUDA a batch should fill the device.
_BATCH_TOKENS_CPU = 1 << 10
_BATCH_TOKENS_CUDA = 1 << 16


class Pack(NamedTuple):
    """Last hidden states of some sequences.

    Attributes:
        states: f32[batch, tokens, hidden].
        real: bool[batch, tokens], False for padding; None where there is none.
        lengths: tokens of each sequence.
    """

    states: Tensor
    real: Tensor | None
    lengths: list[int]


def compute_dtype(device: torch.device, dtype: str) -> torch.dtype:
    """The type of the matrix products; "auto" is bfloat16 where the processor multiplies it, else float32."""
    if dtype == "bfloat16":
        return torch.bfloat16
    if dtype == "float32":
        return torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float32
    return torch.bfloat16 if cpu_multiplies_bfloat16() else torch.float32


def cpu_multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    # Private names of torch: absent ones count as no.
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(probe() for name in probes if (probe := getattr(torch.cpu, name, None)) is not None)


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


class TorchBody:
    """BERT without a head. Immutable once built, so threads may share it.

    Hidden states and LayerNorms stay in float32; matrix products and attention run in the compute type.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; of these "embeddings.*" and "encoder.*" are read.
        sizes: the body's shape.
        device: where it runs.
        dtype: "auto", "float32" or "bfloat16".
    """

    def __init__(self, weights: Weights, sizes: BertSizes, device: torch.device, dtype: str) -> None:
        self._sizes = sizes
        self.device = device
        self.compute = compute_dtype(device, dtype)
        self.batch_tokens = _BATCH_TOKENS_CUDA if device.type == "cuda" else _BATCH_TOKENS_CPU
        self._weights = {
            name: self.placed(array, narrow=name.startswith("encoder.") and "LayerNorm" not in name)
            for name, array in weights.items()
            if name.startswith(("embeddings.", "encoder.")) and ".attention.self." not in name
        }
        for i in range(sizes.num_hidden_layers):
            # One product with three times the rows is faster than three.
            for kind in ("weight", "bias"):
                parts = [weights[f"encoder.layer.{i}.attention.self.{part}.{kind}"] for part in _PARTS]
                self._weights[f"encoder.layer.{i}.attention.qkv.{kind}"] = self.placed(
                    np.concatenate(parts), narrow=True
                )

    def placed(self, array: NDArray[np.float32], *, narrow: bool) -> Tensor:
        """The array on this body's device, in the compute type if `narrow`; in float32 on CPU it shares memory."""
        writable = array if array.flags.writeable else array.copy()
        return torch.from_numpy(writable).to(self.device, self.compute if narrow else torch.float32)

    def pack(self, sequences: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None = None) -> Pack:
        """Run the body, under the caller's `inference_mode`.

        Args:
            sequences: token ids with special ones; each at least one and at most `max_position_embeddings` long.
            kinds: token types (0 or 1) of each token; all 0 by default.
        """
        lengths = [len(sequence) for sequence in sequences]
        longest = max(lengths)
        ids = self._padded(sequences, longest)
        types = None if kinds is None else self._padded(kinds, longest)
        real = None
        if min(lengths) < longest:
            real = torch.arange(longest, device=self.device) < torch.tensor(lengths, device=self.device)[:, None]
        return Pack(self._states(ids, types, real), real, lengths)

    def summaries(
        self,
        sequences: Sequence[Sequence[int]],
        pooling: str,
        kinds: Sequence[Sequence[int]] | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each sequence: the mean of its last hidden states ("mean"), or the first one ("cls").

        Returns:
            f32[len(sequences), hidden].
        """
        with torch.inference_mode():
            return self.summaries_of(self.pack(sequences, kinds), pooling)

    def summaries_of(self, pack: Pack, pooling: str) -> NDArray[np.float32]:
        """The same of states that there are, under the caller's `inference_mode`."""
        states, real, lengths = pack
        if pooling == "cls":
            found = states[:, 0]
        elif real is None:
            found = states.mean(dim=1)
        else:
            found = (states * real[:, :, None]).sum(dim=1) / torch.tensor(lengths, device=self.device)[:, None]
        vectors: NDArray[np.float32] = found.float().cpu().numpy()
        return vectors

    def token_states(self, sequences: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The last hidden states of each sequence, f32[tokens, hidden], special tokens included."""
        with torch.inference_mode():
            return self.states_of(self.pack(sequences))

    @staticmethod
    def states_of(pack: Pack) -> list[NDArray[np.float32]]:
        """The same of states that there are, under the caller's `inference_mode`."""
        whole: NDArray[np.float32] = pack.states.float().cpu().numpy()
        return [whole[i, :n].copy() for i, n in enumerate(pack.lengths)]

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A linear layer, in the compute type."""
        return F.linear(x.to(self.compute), self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _padded(self, rows: Sequence[Sequence[int]], longest: int) -> Tensor:
        padded = np.zeros((len(rows), longest), dtype=np.int64)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = row
        return torch.from_numpy(padded).to(self.device)

    def _states(self, ids: Tensor, types: Tensor | None, real: Tensor | None) -> Tensor:
        w = self._weights
        hidden = F.embedding(ids, w["embeddings.word_embeddings.weight"])
        hidden = hidden + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kinds = w["embeddings.token_type_embeddings.weight"]
        hidden = hidden + (kinds[0] if types is None else F.embedding(types, kinds))
        hidden = self._layer_norm(hidden, "embeddings.LayerNorm")
        mask = None if real is None else real[:, None, None, :]
        for i in range(self._sizes.num_hidden_layers):
            layer = f"encoder.layer.{i}"
            attended = self.linear(
                self._attention(hidden, mask, f"{layer}.attention"), f"{layer}.attention.output.dense"
            )
            hidden = self._layer_norm(attended.float() + hidden, f"{layer}.attention.output.LayerNorm")
            inner = F.gelu(self.linear(hidden, f"{layer}.intermediate.dense"))
            output = self.linear(inner, f"{layer}.output.dense")
            hidden = self._layer_norm(output.float() + hidden, f"{layer}.output.LayerNorm")
        return hidden

    def _attention(self, hidden: Tensor, mask: Tensor | None, name: str) -> Tensor:
        batch, tokens, width = hidden.shape
        heads = self._sizes.num_attention_heads
        joint = self.linear(hidden, f"{name}.qkv").view(batch, tokens, 3, heads, width // heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return context.transpose(1, 2).reshape(batch, tokens, width)

    def _layer_norm(self, x: Tensor, name: str) -> Tensor:
        w = self._weights
        return F.layer_norm(x, (x.shape[-1],), w[f"{name}.weight"], w[f"{name}.bias"], self._sizes.layer_norm_eps)
