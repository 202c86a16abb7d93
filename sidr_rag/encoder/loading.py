"""Makes an encoder from a model's name or folder."""

from __future__ import annotations

from pathlib import Path

from sidr_rag.encoder.encoder import Encoder
from sidr_rag.encoder.resolve import DEFAULT_FOLDER, DEFAULT_MODEL, resolve_model
from sidr_rag.encoder.settings import EncoderSettings


def load_encoder(
    model: str | Path = DEFAULT_MODEL,
    *,
    device: str = "auto",
    dtype: str = "float32",
    normalization: str = "nfkc",
    sparsify: str = "union",
    max_length: int | None = None,
    truncate: bool = False,
    backend: str = "auto",
    activation: str | None = None,
    max_active_dims: int | None = None,
) -> Encoder:
    """An encoder; its configuration and tokenizer are read now, its weights by the first call that needs them.

    Args:
        model: "default" (bundled; never any network), a model folder, or a Hugging Face hub name (needs `[torch]`).
        device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:N".
        dtype: "float32", "bfloat16", or "auto" (bfloat16 in torch where the processor multiplies it). In bfloat16
            passages are embedded up to twice as fast, and a vector depends on the batch it was made in by up to about
            one percent.
        normalization: "nfkc", or "none" to give the tokenizer the text as it is.
        sparsify: "union" (top k and the text's own tokens), "topk" (the paper's S_topk) or "own".
        max_length: tokens read at once, [CLS] and [SEP] included; the model's own lengths by default.
        truncate: cut longer texts at `max_length`, with a warning, instead of reading them in windows; their bags as
            well.
        backend: "auto", "numpy" or "torch"; see `backbones`.
        max_active_dims: k of the top-k of both sides; None takes the model's own.
        activation: "elu1p" or "log1p_relu", where the checkpoint's own cannot be known; None takes the checkpoint's.

    Raises:
        ModelNotFoundError: if the model is not on this machine and could not be fetched.
        MissingExtraError: if torch or transformers is needed and absent.
        InvalidInputError: if an argument or the model's configuration cannot be used.
        InvalidTypeError: if an argument has the wrong type.
    """
    folder = resolve_model(model)
    if folder == DEFAULT_FOLDER:
        name = DEFAULT_MODEL
    else:
        name = str(folder) if Path(model).expanduser().is_dir() else str(model)
    settings = EncoderSettings(
        model=name,
        device=device,
        dtype=dtype,
        normalization=normalization,
        sparsify=sparsify,
        max_length=max_length,
        truncate=truncate,
        backend=backend,
        activation=activation,
        max_active_dims=max_active_dims,
    )
    return Encoder(settings, folder)
