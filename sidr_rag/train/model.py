"""The trainable encoder: the same function and names as `sidr_rag.encoder.torch_bert`, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch import Tensor, nn

from sidr_rag.encoder.config import BertSizes, ModelConfig
from sidr_rag.encoder.torch_bert import elu1p, log1p_relu
from sidr_rag.train.projection import max_logits

# Sequences are packed with others of like length; a pack holds at most so many positions, padding included.
_PACK_TOKENS = 1 << 13
# Below so many positions, a pack takes shorter sequences too: many small products cost more than some padding.
_FULL_TOKENS = 1 << 11
_LOGIT_BLOCK = 1 << 22


@dataclass(frozen=True)
class Pack:
    """Sequences of like length.

    Attributes:
        places: i64[n], where these sequences stand in the batch.
        hidden: f32[n, tokens, hidden], last hidden states.
        real: bool[n, tokens], false at padding; None where there is none.
    """

    places: Tensor
    hidden: Tensor
    real: Tensor | None


Encoded = Sequence[Pack]


class NarrowLayers:
    """Applies linear layers in the compute type; each layer's weights are converted once, however often it is used."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._converted: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor, layer: nn.Module) -> Tensor:
        """The layer's output, of the compute type."""
        if layer not in self._converted:
            assert isinstance(layer, nn.Linear)
            self._converted[layer] = (layer.weight.to(self.dtype), layer.bias.to(self.dtype))
        return F.linear(x.to(self.dtype), *self._converted[layer])


class _Embeddings(nn.Module):
    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, sizes.hidden_size)
        self.token_type_embeddings = nn.Embedding(sizes.type_vocab_size, sizes.hidden_size)
        self.LayerNorm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)

    def forward(self, ids: Tensor, kinds: Tensor | None) -> Tensor:
        hidden = self.word_embeddings(ids) + self.position_embeddings.weight[: ids.shape[1]]
        kind = self.token_type_embeddings.weight[0] if kinds is None else self.token_type_embeddings(kinds)
        normed: Tensor = self.LayerNorm(hidden + kind)
        return normed


class _SelfAttention(nn.Module):
    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self._heads = sizes.num_attention_heads

    def forward(self, hidden: Tensor, mask: Tensor | None, linear: NarrowLayers) -> Tensor:
        batch, tokens, width = hidden.shape
        narrow = hidden.to(linear.dtype)
        # On CPU, the gradient of attention takes several times longer in bfloat16 than in float32.
        kind = torch.float32 if narrow.device.type == "cpu" else linear.dtype
        q, k, v = (
            linear(narrow, layer).to(kind).view(batch, tokens, self._heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return context.transpose(1, 2).reshape(batch, tokens, width)


class _Output(nn.Module):
    """A projection back to the stream, dropout, and the LayerNorm of their sum."""

    def __init__(self, inputs: int, width: int, eps: float, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)
        self._dropout = dropout

    def forward(self, inner: Tensor, hidden: Tensor, linear: NarrowLayers) -> Tensor:
        added = F.dropout(linear(inner, self.dense).float(), self._dropout, self.training)
        normed: Tensor = self.LayerNorm(added + hidden)
        return normed


class _Layer(nn.Module):
    def __init__(self, sizes: BertSizes, dropout: float) -> None:
        super().__init__()
        width, eps = sizes.hidden_size, sizes.layer_norm_eps
        self.attention = nn.ModuleDict({"self": _SelfAttention(sizes), "output": _Output(width, width, eps, dropout)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, sizes.intermediate_size)})
        self.output = _Output(sizes.intermediate_size, width, eps, dropout)

    def forward(self, hidden: Tensor, mask: Tensor | None, linear: NarrowLayers) -> Tensor:
        attended = self.attention["output"](self.attention["self"](hidden, mask, linear), hidden, linear)
        inner = F.gelu(linear(attended, self.intermediate["dense"]))
        output: Tensor = self.output(inner, attended, linear)
        return output


class _MlmHead(nn.Module):
    def __init__(self, sizes: BertSizes, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.hidden_size, sizes.hidden_size)
        self.LayerNorm = nn.LayerNorm(sizes.hidden_size, eps=eps)
        self.bias = nn.Parameter(torch.zeros(sizes.vocab_size))


class TrainableEncoder(nn.Module):
    """One side's encoder with its two heads: the vocabulary head, and the dense head (mean-pooled, normalised).

    `state_dict` has the neutral names of `sidr_rag.encoder.checkpoint`. Hidden states and LayerNorms are float32,
    matrix products are of the compute type.

    Args:
        config: the model's configuration; a BERT with tied decoder.
        token_ids: i64[dim], the token id of every dimension.
        dropout: on embeddings and sublayer outputs, in training mode.
        dtype: of matrix products.
    """

    token_ids: Tensor

    def __init__(self, config: ModelConfig, token_ids: Tensor, dropout: float, dtype: torch.dtype) -> None:
        super().__init__()
        assert config.bert is not None  # the caller has refused other bodies
        sizes = config.bert
        self.embeddings = _Embeddings(sizes)
        layers = nn.ModuleList(_Layer(sizes, dropout) for _ in range(sizes.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        if config.head == "mlm":
            self.mlm = _MlmHead(sizes, config.head_layer_norm_eps)
        else:
            self.ln = nn.LayerNorm(sizes.hidden_size, eps=config.head_layer_norm_eps)
        self.logit_bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("token_ids", token_ids, persistent=False)
        self._mlm = config.head == "mlm"
        self._activation: Callable[[Tensor], Tensor] = elu1p if config.activation == "elu1p" else log1p_relu
        self._dropout = dropout
        self.dtype = dtype

    def encode(self, sequences: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None = None) -> list[Pack]:
        """Last hidden states of token sequences that carry their special tokens; padding changes nothing.

        Args:
            sequences: each at least one and at most `max_position_embeddings` long.
            kinds: the token types of each sequence; None for 0 throughout.
        """
        device = self.logit_bias.device
        packs = []
        linear = NarrowLayers(self.dtype)
        for places in packed_places([len(s) for s in sequences], _PACK_TOKENS):
            lengths = torch.tensor([len(sequences[i]) for i in places], device=device)
            longest = int(lengths.max())
            ids = _padded([sequences[i] for i in places], longest).to(device)
            types = None if kinds is None else _padded([kinds[i] for i in places], longest).to(device)
            real = None
            if int(lengths.min()) < longest:
                real = torch.arange(longest, device=device) < lengths[:, None]
            mask = None if real is None else real[:, None, None, :]
            hidden = F.dropout(self.embeddings(ids, types), self._dropout, self.training)
            for layer in self.encoder["layer"]:  # type: ignore[attr-defined]
                hidden = layer(hidden, mask, linear)
            packs.append(Pack(torch.tensor(places, device=device), hidden, real))
        return packs

    def dense(self, encoded: Encoded) -> Tensor:
        """The dense head: the mean of the last hidden states, scaled to length 1; f32[texts, hidden]."""
        means = []
        for pack in encoded:
            if pack.real is None:
                means.append(pack.hidden.mean(dim=1))
            else:
                share = pack.real / pack.real.sum(dim=1, keepdim=True)
                means.append((pack.hidden * share[:, :, None]).sum(dim=1))
        return F.normalize(in_batch_order(means, encoded), dim=-1)

    def first_states(self, encoded: Encoded) -> Tensor:
        """The state of each text's first token, scaled to length 1: f32[texts, hidden]."""
        return F.normalize(in_batch_order([pack.hidden[:, 0] for pack in encoded], encoded), dim=-1)

    def weights_at(self, encoded: Encoded, dims: Tensor) -> Tensor:
        """V_theta before sparsification, on some dimensions: f32[texts, len(dims)].

        max-pool and the activation commute, since the activation increases; so logits are pooled first.
        """
        rows = self._rows(dims)
        pooled = [max_logits(self._head_states(pack), rows) for pack in encoded]
        return self._activation(in_batch_order(pooled, encoded) + self._bias(dims))

    def weights_at_each(self, encoded: Encoded, dims: Tensor) -> Tensor:
        """V_theta on each text's own choice of dimensions.

        Args:
            encoded: of n texts.
            dims: i64[n, k].

        Returns:
            f32[n, k].
        """
        pooled = []
        for pack in encoded:
            chosen = dims[pack.places]
            rows = self._rows(chosen.flatten()).view(*chosen.shape, -1)
            logits = torch.bmm(self._head_states(pack), rows.transpose(1, 2))
            pooled.append(logits.amax(dim=1).float())
        return self._activation(in_batch_order(pooled, encoded) + self._bias(dims))

    @torch.no_grad()
    def pooled_logits(self, encoded: Encoded) -> Tensor:
        """Every dimension's pooled logit, without gradients: f32[texts, dim], computed in blocks of dimensions."""
        dim = len(self.token_ids)
        projection = self._rows(torch.arange(dim, device=self.token_ids.device))
        pooled = []
        for pack in encoded:
            narrow = self._head_states(pack)
            out = torch.empty((len(narrow), dim), dtype=torch.float32, device=narrow.device)
            width = max(256, _LOGIT_BLOCK // (narrow.shape[0] * narrow.shape[1]))
            for start in range(0, dim, width):
                out[:, start : start + width] = F.linear(narrow, projection[start : start + width]).amax(dim=1)
            pooled.append(out)
        return in_batch_order(pooled, encoded) + self._bias(torch.arange(dim, device=self.token_ids.device))

    def _head_states(self, pack: Pack) -> Tensor:
        """What the projection multiplies, in the compute type: [texts, tokens, hidden]."""
        if self._mlm:
            hidden = self.mlm.LayerNorm(F.gelu(NarrowLayers(self.dtype)(pack.hidden, self.mlm.dense)).float())
        else:
            hidden = self.ln(pack.hidden)
        if pack.real is not None:
            # Padding that repeats the first token's state cannot change a maximum.
            hidden = torch.where(pack.real[:, :, None], hidden, hidden[:, :1])
        narrow: Tensor = hidden.to(self.dtype)
        return narrow

    def _rows(self, dims: Tensor) -> Tensor:
        """The word embeddings of dimensions, in the compute type: [len(dims), hidden]."""
        return F.embedding(self.token_ids[dims], self.embeddings.word_embeddings.weight).to(self.dtype)

    def _bias(self, dims: Tensor) -> Tensor:
        return self.logit_bias + self.mlm.bias[self.token_ids[dims]] if self._mlm else self.logit_bias


def packed_places(lengths: Sequence[int], most_tokens: int, spare: float = 0.2) -> list[list[int]]:
    """Groups of sequences of like length: at most `most_tokens` positions each, little padding where they are full.

    Args:
        lengths: of the sequences.
        most_tokens: a longer sequence gets a group of its own.
        spare: what a group's shortest sequence may lack, as a share of its longest.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups:
            longest = lengths[groups[-1][0]]
            near = lengths[i] >= (1 - spare) * longest or len(groups[-1]) * longest < _FULL_TOKENS
            if near and (len(groups[-1]) + 1) * longest <= most_tokens:
                groups[-1].append(i)
                continue
        groups.append([i])
    return groups


def _padded(sequences: Sequence[Sequence[int]], longest: int) -> Tensor:
    padded = torch.zeros((len(sequences), longest), dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.as_tensor(sequence)
    return padded


def in_batch_order(parts: Sequence[Tensor], encoded: Encoded) -> Tensor:
    """Rows of all packs in the order of the batch."""
    places = torch.cat([pack.places for pack in encoded])
    return torch.cat(list(parts))[torch.argsort(places)]
