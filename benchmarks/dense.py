"""A dense pipeline as one would write it: all-MiniLM-L6-v2 in torch, batched by length, and an exact search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.children import ROOT
from benchmarks.searchers.base import peer

MODEL = ROOT.parent / "shared" / "models" / "all-MiniLM-L6-v2"
MOST_TOKENS = 256
BATCH = 32
_TRIAL_TEXTS = 64


class MiniLm:
    """The sentence embedder: mean of the last hidden states over real tokens, length 1."""

    def __init__(self, folder: Path = MODEL) -> None:
        """Load tokenizer and weights, one thread."""
        torch, transformers = peer("torch", "torch"), peer("transformers", "transformers")
        self._torch = torch
        torch.set_num_threads(1)
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
        )
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        model = transformers.BertModel.from_pretrained(
            str(folder), local_files_only=True, dtype=torch.float32, add_pooling_layer=False
        )
        self._model = model.eval()
        self.dtype = "float32"

    def choose_dtype(self, texts: Sequence[str]) -> None:
        """Take bfloat16 if it embeds some of the texts faster than float32 on this processor."""
        torch = self._torch
        seconds = {}
        for dtype in (torch.float32, torch.bfloat16):
            self._model.to(dtype)
            self.embed(texts[:4])
            start = time.process_time()
            self.embed(texts[:_TRIAL_TEXTS])
            seconds[dtype] = time.process_time() - start
        best = min(seconds, key=lambda dtype: seconds[dtype])
        self._model.to(best)
        self.dtype = str(best).removeprefix("torch.")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """f32[n, 384]; texts of like length share a batch, so that little is padded."""
        torch = self._torch
        ids = self._tokenizer(list(texts), max_length=MOST_TOKENS, truncation=True)["input_ids"]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        vectors = np.empty((len(ids), self._model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                part = order[start : start + BATCH]
                batch = self._tokenizer.pad({"input_ids": [ids[i] for i in part]}, return_tensors="pt")
                hidden = self._model(**batch).last_hidden_state
                mask = batch["attention_mask"][:, :, None].to(hidden.dtype)
                means = (hidden * mask).sum(1) / mask.sum(1)
                vectors[part] = torch.nn.functional.normalize(means, dim=1).float().numpy()
        return vectors


def best_rows(passages: NDArray[np.float32], query: NDArray[np.float32], k: int) -> list[int]:
    """The k passages with the largest inner products, best first."""
    scores: Any = passages @ query
    rows = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
    return [int(row) for row in rows[np.argsort(-scores[rows])]]
