"""Documents as bags of tokens and questions as weighted dimensions, for sparse stores that are not ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sidr_rag import SparseVectors
from sidr_rag.encoder import Encoder, load_encoder


class BagEncoder:
    """The two sides of the paper's beta search: binary documents, made without a model, and V_theta of questions.

    A store that scores by inner product then ranks as `SiDR` with weighting="binary" does. Other weightings need
    statistics of the whole collection, which such a store does not keep.

    Args:
        model: "default" (bundled), a folder, a name on the model hub (needs `sidr-rag[torch]`), or an `Encoder` that
            is loaded already, such as `retriever.engine.encoder`.
        device: "auto", "cpu" or "cuda".
        query_repr: "theta", "lex", "bin" or "bot" (the question's own words; no model).
        max_active_dims: cut the question's vector to this many dimensions.
        options: of `sidr_rag.encoder.load_encoder`, such as `dtype`.

    Raises:
        ModelNotFoundError: if the model is not here and cannot be fetched.
        InvalidInputError, InvalidTypeError: if an argument cannot be used.
    """

    def __init__(
        self,
        model: str | Path | Encoder = "default",
        *,
        device: str = "auto",
        query_repr: str = "theta",
        max_active_dims: int | None = None,
        **options: Any,
    ) -> None:
        self.encoder = model if isinstance(model, Encoder) else load_encoder(model, device=device, **options)
        self.query_repr = query_repr
        self.max_active_dims = max_active_dims
        self.query_vectors([])  # so that a bad option is told here

    def bags(self, texts: Sequence[str]) -> SparseVectors:
        """Weight 1 for each distinct token of each text."""
        return self.encoder.encode_passages(texts, representation="bot")

    def query_vectors(self, texts: Sequence[str]) -> SparseVectors:
        """The questions' vectors."""
        return self.encoder.encode_binary_queries(
            texts, representation=self.query_repr, max_active_dims=self.max_active_dims
        )
