"""Masked-LM checkpoints whose body is not a BERT, run by transformers (never with remote code)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.sparsify import Row
from sidr_rag.encoder.torch_body import compute_dtype
from sidr_rag.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Summarized

_LOGIT_BLOCK_CPU = 1 << 24  # elements of a [texts, tokens, vocabulary] block of logits
_LOGIT_BLOCK_CUDA = 1 << 28


class TransformersMlm:
    """One masked-LM model for both sides. Immutable once built, so threads may share it. It screens nothing.

    Args:
        folder: a local model folder; nothing is fetched.
        token_ids: i32[dim], the token id of every dimension.
        device: where it runs.
        dtype: "auto", "float32" or "bfloat16".

    Raises:
        MissingExtraError: if transformers is absent.
        InvalidInputError: if transformers cannot load the folder as a masked-LM model.
    """

    screens = False

    def __init__(self, folder: Path, token_ids: NDArray[np.int32], device: torch.device, dtype: str) -> None:
        try:
            from transformers import AutoModelForMaskedLM
        except ImportError:
            raise MissingExtraError("transformers", "torch", f"the model in {folder.name}") from None
        try:
            model, report = AutoModelForMaskedLM.from_pretrained(
                str(folder), trust_remote_code=False, local_files_only=True, output_loading_info=True
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise InvalidInputError(
                f"model: transformers cannot load {folder} as a masked-LM model ({type(error).__name__}: {error})"
            ) from error
        if report["missing_keys"]:
            raise InvalidInputError(
                f"model: {folder} is no masked-LM checkpoint; it lacks {sorted(report['missing_keys'])[:3]}"
            )
        vocabulary = int(model.get_output_embeddings().weight.shape[0])
        if int(token_ids.max(initial=0)) >= vocabulary:
            raise InvalidInputError(
                f"model: {folder} has {vocabulary} output rows, but its tokenizer has ids up to {int(token_ids.max())}"
            )
        self._device = device
        self._dtype = compute_dtype(device, dtype)
        self._model = model.eval().to(device, torch.float32)
        self._token_ids = torch.from_numpy(token_ids.astype(np.int64)).to(device)
        self._padding = int(model.config.pad_token_id or 0)
        block = _LOGIT_BLOCK_CUDA if device.type == "cuda" else _LOGIT_BLOCK_CPU
        self.batch_tokens = max(1, block // vocabulary)

    @property
    def dtype(self) -> str:
        """The type of the matrix products: "float32" or "bfloat16"."""
        return str(self._dtype).removeprefix("torch.")

    def best_logits(
        self,
        sequences: Sequence[Sequence[int]],
        own: Sequence[NDArray[np.int32]],
        k: int,
        summarized: Summarized | None = None,
    ) -> list[Row]:
        """All of `pooled_logits`, as rows: the k greatest and the own ones are among them."""
        every = np.arange(len(self._token_ids), dtype=np.int32)
        return [(every, row) for row in self.pooled_logits(sequences, summarized)]

    def pooled_logits(
        self, sequences: Sequence[Sequence[int]], summarized: Summarized | None = None
    ) -> NDArray[np.float32]:
        """Vocabulary logits, max-pooled over each sequence's tokens, special tokens included; padding is masked.

        Args:
            sequences: token ids with the model's first and last special token.
            summarized: never told anything; such a model has no dense head.

        Returns:
            f32[len(sequences), dim].
        """
        longest = max(len(sequence) for sequence in sequences)
        padded = np.full((len(sequences), longest), self._padding, dtype=np.int64)
        real = np.zeros((len(sequences), longest), dtype=np.int64)
        for i, sequence in enumerate(sequences):
            padded[i, : len(sequence)] = sequence
            real[i, : len(sequence)] = 1
        mask = torch.from_numpy(real).to(self._device)
        narrow = self._dtype == torch.bfloat16
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=narrow):
            ids = torch.from_numpy(padded).to(self._device)
            logits = self._model(input_ids=ids, attention_mask=mask).logits
            pooled = logits.masked_fill(mask[:, :, None] == 0, float("-inf")).amax(dim=1)
            result: NDArray[np.float32] = pooled[:, self._token_ids].float().cpu().numpy()
        return result
