"""The paper authors' method, restated from their published code: bags in a torch CSR matrix, a product and topk.

Their builder tokenizes batches of 32, marks each batch's tokens in one dense buffer, and collects views of that buffer,
so that all but the last batch are lost; here every batch is made sparse before the buffer is used again. Their
half-precision values are 32-bit floats here: torch has no product of half-precision CSR matrices on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import K
from benchmarks.searchers.base import BatchSearcher, peer

BATCH = 32
MOST_TOKENS = 256
VOCAB_OFFSET = 999


def authors_bags(texts: Sequence[str], tokenizer: Any, *, vocab_offset: int = VOCAB_OFFSET) -> Any:
    """Bags of all texts as a torch CSR matrix [texts, vocabulary - offset].

    Args:
        texts: cut at 256 tokens each, [CLS] and [SEP] included.
        tokenizer: a Hugging Face tokenizer; its ids are columns.
        vocab_offset: how many of the first ids are left out.
    """
    torch = peer("torch", "torch")
    buffer = torch.zeros((BATCH, len(tokenizer)), dtype=torch.float32)
    parts = []
    for start in range(0, len(texts), BATCH):
        buffer.zero_()
        batch = list(texts[start : start + BATCH])
        for i, ids in enumerate(tokenizer(batch, max_length=MOST_TOKENS, truncation=True)["input_ids"]):
            buffer[i, ids] = 1
        parts.append(buffer[: len(batch), vocab_offset:].to_sparse_coo())
    return torch.cat(parts).to_sparse_csr()


def authors_tokenizer() -> Any:
    """The default model's tokenizer as transformers loads it."""
    from sidr_rag.encoder.resolve import DEFAULT_FOLDER

    transformers = peer("transformers", "transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(DEFAULT_FOLDER / "tokenizer.json"))


class TorchCsr(BatchSearcher):
    """Dense queries times the transposed CSR matrix, then topk."""

    label = "the authors': torch CSR product, topk"
    packages = ("torch",)
    index = "torch"
    in_memory = True

    def load(self) -> None:
        """The module, with one thread."""
        self._torch = peer("torch", "torch")
        self._torch.set_num_threads(1)

    def open(self) -> None:
        """Values and 64-bit columns, as their index has."""
        self.load()
        dims = np.asarray(self.corpus.dims)
        self._matrix = self._torch.sparse_csr_tensor(
            self._torch.from_numpy(self.corpus.indptr),
            self._torch.from_numpy(dims.astype(np.int64)),
            self._torch.ones(len(dims), dtype=self._torch.float32),
            size=(len(self.corpus), self.corpus.dim),
        )

    def index_bytes(self) -> int:
        """The matrix's three arrays."""
        parts = (self._matrix.crow_indices(), self._matrix.col_indices(), self._matrix.values())
        return sum(part.numel() * part.element_size() for part in parts)

    def take(self, name: str) -> None:
        """Dense rows."""
        self._queries = self._torch.from_numpy(self.corpus.vectors(name).toarray())

    def search(self, i: int) -> Any:
        """One query."""
        return self._found(self._queries[i : i + 1])

    def search_all(self) -> Any:
        """All in one product."""
        return self._found(self._queries)

    def _found(self, queries: Any) -> Any:
        with self._torch.no_grad():
            return self._torch.matmul(queries, self._matrix.t()).topk(min(K, len(self.corpus)))

    def rows(self, found: Any) -> Sequence[int]:
        """Of the first query."""
        rows: list[int] = found.indices[0].tolist()
        return rows
