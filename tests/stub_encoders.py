"""Encoders without a network: the engine's parts are tested with vectors that can be worked out by hand."""

import re
from types import SimpleNamespace

import numpy as np

from sidr_rag.costs import note_read
from sidr_rag.encoder.resolve import DEFAULT_FOLDER
from sidr_rag.engine import SiDR
from sidr_rag.index.folder import StoreSettings
from sidr_rag.index.store import Store
from sidr_rag.search.weighting import BINARY
from sidr_rag.text import BagTokenizer
from sidr_rag.types import SparseVectors

LEVELS = (1, 2, 4)


def default_tokenizer():
    return BagTokenizer.from_file(DEFAULT_FOLDER / "tokenizer.json", vocab_offset=999)


class StubEncoder:
    """Own words with weight 1 ("oracle L"); passages too, plus a little weight that depends on the word.

    With `spread`, theta also has a few other dimensions, as a real encoder's has.
    """

    def __init__(self, tokenizer, *, name="stub", weighting=None, rerank_blend=None, spread=0, fingerprint="stub-1"):
        self.tokenizer = tokenizer
        self.fingerprint = fingerprint
        self.config = SimpleNamespace(
            name=name, weighting=weighting, rerank_blend=rerank_blend, binary_active_dims=None, binary_layers=0
        )
        self.spread = spread
        self.encoded = []

    def encode_binary_queries(self, texts, *, representation="theta", max_active_dims=None):
        return self.encode_queries(texts, representation=representation, max_active_dims=max_active_dims)

    def encode_queries(self, texts, *, representation="theta", max_active_dims=None):
        if representation != "bot":
            note_read("query", len(texts))
        return self._encode(texts, representation, max_active_dims)

    def encode_passages(self, texts, *, representation="theta", max_active_dims=None):
        if representation != "bot":
            self.encoded += list(texts)
            note_read("passage", len(texts))
        return self._encode(texts, representation, max_active_dims)

    def forget_recent(self):
        """There is one head alone."""

    def _encode(self, texts, representation, max_active_dims):
        counts = self.tokenizer.counts(texts)
        rows = []
        for a, b in zip(counts.indptr, counts.indptr[1:], strict=False):
            dims = counts.dims[a:b].astype(np.int64)
            if representation in ("bot", "lex") or not self.spread or not len(dims):
                rows.append((dims, np.ones(len(dims), np.float32)))
                continue
            others = (dims[:, None] * 31 + 7 * np.arange(1, self.spread + 1)).ravel() % counts.dim
            every = np.union1d(dims, others)
            weights = (0.1 + (every * 37 % 101) / 61).astype(np.float32)
            if representation == "bin":
                weights = np.ones(len(every), np.float32)
            if max_active_dims is not None and max_active_dims < len(every):
                kept = np.sort(np.argsort(-weights, kind="stable")[:max_active_dims])
                every, weights = every[kept], weights[kept]
            rows.append((every, weights))
        return SparseVectors.from_rows(rows, counts.dim)


def stub_settings(tokenizer, levels=LEVELS, **options):
    return StoreSettings(
        tokenizer.vocabulary.dim, tuple(levels), tokenizer.fingerprint, tokenizer.normalization, options
    )


def stub_sidr(tokenizer, path=None, *, encoder=None, weighting=BINARY, levels=LEVELS, read_only=False, **arguments):
    """A SiDR over a stub encoder: in memory, or in a folder that is made when it is no store yet."""
    encoder = encoder or StubEncoder(tokenizer)
    if path is None:
        store = Store.in_memory(stub_settings(tokenizer, levels), tokenizer)
    elif (path / "sidr.json").exists():
        store = Store.open(path, tokenizer, read_only=read_only)
    else:
        store = Store.create(path, stub_settings(tokenizer, levels), tokenizer)
    return SiDR(store, encoder, weighting, **arguments)


class TinyTokenizer:
    """Words a, b, c… of one letter as dimensions: small enough for a model by brute force."""

    fingerprint = "tiny-1"
    normalization = "none"

    def __init__(self, dim=26, fingerprint="tiny-1"):
        self.fingerprint = fingerprint
        self.vocabulary = SimpleNamespace(
            dim=dim,
            dim_to_token=np.arange(dim, dtype=np.int32),
            token_to_dim=np.arange(dim, dtype=np.int32),
            token=lambda d: chr(97 + d),
        )

    def counts(self, texts):
        from sidr_rag.types import TokenCounts

        dim = self.vocabulary.dim
        indptr, dims, counts, lengths = [0], [], [], []
        for text in texts:
            letters = [ord(w) - 97 for w in re.findall(r"\b[a-z]\b", text)]
            found, times = np.unique(np.array(letters, dtype=np.int64), return_counts=True)
            dims += found.tolist()
            counts += times.tolist()
            lengths.append(len(letters))
            indptr.append(len(dims))
        return TokenCounts(
            np.array(indptr, np.int64),
            np.array(dims, np.uint16 if dim <= 65_536 else np.int32),
            np.array(counts, np.uint32),
            np.array(lengths, np.uint32),
            dim,
        )

    def sequence_ids(self, text):
        return [ord(w) - 97 for w in re.findall(r"\b[a-z]\b", text)]

    def __reduce__(self):
        return TinyTokenizer, (self.vocabulary.dim, self.fingerprint)


def oracle(passages, queries, weighting, dim, k, allowed=None):
    """DESIGN's scoring contract in plain Python.

    Args:
        passages: [(key, {dim: count})] of the living, in seq order.
        queries: [{dim: w}].

    Returns:
        for each query [(key, float32 score)], best first.
    """
    total = sum(sum(counts.values()) for _, counts in passages)
    average = total / len(passages) if passages else 0.0
    results = []
    for weights in queries:
        scored = []
        for order, (key, counts) in enumerate(passages):
            value, matched = 0.0, False
            for level, gain in zip(weighting.levels, weighting.gains, strict=True):
                for t in sorted(weights):
                    w = float(np.float32(weights[t]))
                    if w > 0 and counts.get(t, 0) >= level:
                        value += gain * w
                        matched = True
            if not matched or (allowed is not None and key not in allowed):
                continue
            if weighting.length_exponent and total:
                ratio = float(sum(counts.values())) / average
                base = np.array([1.0 - weighting.length_slope + weighting.length_slope * ratio])
                value = value * float(np.power(base, -weighting.length_exponent)[0])
            scored.append((-float(np.float32(value)), order, key))
        results.append([(key, np.float32(-negative)) for negative, _, key in sorted(scored)[:k]])
    return results
