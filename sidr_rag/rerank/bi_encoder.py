"""Any dense bi-encoder as a second stage: E5, BGE, Contriever, DPR and other sentence-transformers models."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import note_read
from sidr_rag.encoder.checkpoint import checkpoint_digest
from sidr_rag.encoder.config import DenseHead, Pooling
from sidr_rag.encoder.resolve import resolve_model
from sidr_rag.encoder.settings import check_choice, check_texts
from sidr_rag.encoder.windows import dense_vectors, windows
from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from sidr_rag.fork_lock import ForkLock
from sidr_rag.rerank.bert_files import bert_sizes, read_bert, read_config
from sidr_rag.rerank.recipe import Recipe, family_of, folder_prompts, has_plain_modules, recipe_of

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Body
    from sidr_rag.text import BagTokenizer


class BiEncoder:
    """A dense bi-encoder: `sidr.search(query, rerank=100, reranker=BiEncoder("intfloat/e5-base-v2"))`.

    Vectors of passages are kept in the store's cache, one byte a number. A BERT is run by the library's own code, with
    torch or without; other architectures need sentence-transformers (`pip install sentence-transformers`). Texts
    longer than `max_length` are read in windows, and the windows' vectors averaged by their lengths. The weights are
    read at first use. Threads may share it.

    Args:
        model: a folder (sentence-transformers' layout or a plain BERT), a name on the Hugging Face hub (needs `[torch]`
            and a network on first use), or a loaded `SentenceTransformer`.
        query_model: another model for queries, as DPR has; the same by default.
        query_prompt: put before every query; None takes the model's own (from its folder, or known of E5 and BGE).
        passage_prompt: the same for passages.
        pooling: "mean" or "cls"; None takes the model's own, or "mean".
        normalize: whether scores are cosines; None takes the model's own, or True.
        max_length: tokens read at once; None takes the model's own.
        backend: "auto" (torch where it is installed), "numpy" or "torch".
        device: "auto", "cpu" or "cuda".
        dtype: of a BERT: "float32", "bfloat16", or "auto" (bfloat16 in torch where the processor multiplies it); NumPy
            is float32.

    Raises:
        ModelNotFoundError: if the model is not on this machine and could not be fetched.
        MissingExtraError: if a package is needed and absent.
        InvalidInputError, InvalidTypeError: for arguments that cannot be used.
    """

    def __init__(
        self,
        model: str | Path | Any,
        *,
        query_model: str | Path | Any = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        backend: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
    ) -> None:
        placing = Placing.of(backend, device, dtype)
        given = {
            "query_prompt": query_prompt,
            "passage_prompt": passage_prompt,
            "pooling": pooling,
            "normalize": normalize,
            "max_length": max_length,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        if pooling is not None:
            check_choice("pooling", pooling, ("mean", "cls"))
        self._passages = _side(model, chosen, placing)
        self._queries = self._passages if query_model is None else _side(query_model, chosen, placing)
        self.name = self._passages.name
        self.fingerprint = self._passages.fingerprint

    def __repr__(self) -> str:
        return f"BiEncoder({self.name!r})"

    @property
    def recipe(self) -> Recipe | None:
        """How passages become vectors; None where sentence-transformers does it."""
        return getattr(self._passages, "recipe", None)

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self._passages.width

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, f32[n, width]."""
        check_texts(texts)
        return self._queries.encode(texts, "query")

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of passages, f32[n, width]."""
        check_texts(texts)
        return self._passages.encode(texts, "passage")


class _Bert:
    """A BERT in a folder, run by the library's own code."""

    def __init__(self, folder: Path, recipe: Recipe, name: str, placing: Placing) -> None:
        from sidr_rag.encoder.vocabulary_file import tokenizer_json
        from sidr_rag.text import BagTokenizer

        self.name = name
        self.recipe = recipe
        self._folder = folder
        sizes = bert_sizes(read_config(folder))
        assert sizes is not None
        self._sizes = sizes
        self.width = sizes.hidden_size
        source = folder / "tokenizer.json"
        content = source.read_text(encoding="utf-8") if source.is_file() else tokenizer_json(folder / "vocab.txt")
        # The model's own tokenizer to the letter: no normalization of ours before it.
        self._tokenizer: BagTokenizer = BagTokenizer(content, normalization="none")
        self._size = min(recipe.max_length, sizes.max_position_embeddings)
        self._placing = placing
        self._lock = ForkLock()
        self._body: Body | None = None
        described = [checkpoint_digest(folder), str(replace(recipe, query_prompt="")), self._tokenizer.fingerprint]
        self.fingerprint = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]

    def encode(self, texts: Sequence[str], side: str) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.width), np.float32)
        prompt = self.recipe.query_prompt if side == "query" else self.recipe.passage_prompt
        first, last = self._tokenizer.special_ids["cls"], self._tokenizer.special_ids["sep"]
        prefix = self._tokenizer.sequence_ids(prompt) if prompt else []
        items: list[tuple[int, Sequence[int]]] = []
        n_tokens = 0
        for i, text in enumerate(texts):
            ids = self._tokenizer.sequence_ids(text)
            n_tokens += len(ids)
            items += [(i, [first, *prefix, *w, last]) for w in windows(ids, max(1, self._size - 2 - len(prefix)))]
        note_read(side, len(texts), n_tokens)
        head = DenseHead(cast(Pooling, self.recipe.pooling), self.recipe.normalize)
        return dense_vectors(items, len(texts), self._loaded(), head)

    def _loaded(self) -> Body:
        with self._lock:
            if self._body is None:
                self._body = load_body(self._folder, self._sizes, self._placing)
            return self._body


class _Transformer:
    """A model that sentence-transformers runs, prompts and pooling included."""

    def __init__(self, model: Any, chosen: Mapping[str, Any]) -> None:
        unusable = sorted(set(chosen) - {"query_prompt", "passage_prompt", "normalize"})
        if unusable:
            raise InvalidInputError(f"{', '.join(unusable)}: sentence-transformers runs this model; set it there")
        self._model = model
        self._prompts = {"query": chosen.get("query_prompt"), "passage": chosen.get("passage_prompt")}
        self._normalize = bool(chosen.get("normalize", False))
        card = getattr(model, "model_card_data", None)
        self.name = str(getattr(card, "base_model", None) or type(model).__name__)
        dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        self.width = int(dimension())
        probe = self.encode(["fingerprint of a model: river, 42"], "passage")
        # Weights of an object have no file; what it makes of a text tells models apart.
        described = f"{self.name}{chosen}{model.max_seq_length}".encode() + np.round(probe, 4).tobytes()
        self.fingerprint = hashlib.sha256(described).hexdigest()[:16]

    def encode(self, texts: Sequence[str], side: str) -> NDArray[np.float32]:
        note_read(side, len(texts))
        general = self._model.encode
        call = getattr(self._model, "encode_query" if side == "query" else "encode_document", general)
        options: dict[str, Any] = {"convert_to_numpy": True, "show_progress_bar": False}
        if self._prompts[side] is not None:
            call, options["prompt"] = general, self._prompts[side]
        vectors = call(list(texts), normalize_embeddings=self._normalize, **options)
        return np.asarray(vectors, dtype=np.float32).reshape(len(texts), self.width)


@dataclass(frozen=True)
class Placing:
    """Which code runs a BERT, where, and in what type.

    Attributes:
        backend: "auto" (torch where it is installed), "numpy" or "torch".
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "float32", "bfloat16", or "auto" (bfloat16 where torch and the processor multiply it).
    """

    backend: str
    device: str
    dtype: str

    @classmethod
    def of(cls, backend: str, device: str, dtype: str) -> Placing:
        """Check the choices.

        Raises:
            InvalidInputError: naming the one that is not known.
        """
        check_choice("backend", backend, ("auto", "numpy", "torch"))
        check_choice("dtype", dtype, ("auto", "float32", "bfloat16"))
        return cls(backend, device, dtype)


def load_body(folder: Path, sizes: Any, placing: Placing) -> Body:
    """The body of a folder's BERT, in torch where it is installed (and not refused), else in NumPy.

    Raises:
        MissingExtraError: if torch is asked for and absent.
    """
    return body_of(read_bert(folder, sizes), sizes, placing)


def body_of(weights: Mapping[str, NDArray[np.float32]], sizes: Any, placing: Placing) -> Body:
    """The same of weights that were read."""
    torch = importlib.util.find_spec("torch") is not None
    if placing.backend == "numpy" or (placing.backend == "auto" and not torch):
        from sidr_rag.encoder.numpy_body import NumpyBody

        return NumpyBody(weights, sizes)
    if not torch:
        raise MissingExtraError("torch", "torch", "backend='torch'")
    from sidr_rag.encoder.torch_body import TorchBody, torch_device

    return TorchBody(weights, sizes, torch_device(placing.device), placing.dtype)


def _side(model: Any, chosen: Mapping[str, Any], placing: Placing) -> _Bert | _Transformer:
    if not isinstance(model, (str, Path)):
        if not callable(getattr(model, "encode", None)) or not hasattr(model, "max_seq_length"):
            raise InvalidTypeError(f"model is a {type(model).__name__}; give a folder, a name or a SentenceTransformer")
        return _Transformer(model, chosen)
    folder = resolve_model(model)
    if bert_sizes(read_config(folder)) is not None and has_plain_modules(folder):
        return _Bert(folder, recipe_of(folder, str(model), chosen), str(model), placing)
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtraError("sentence-transformers", "rerank", f"the model {str(model)!r}")
    from sentence_transformers import SentenceTransformer

    device = None if placing.device == "auto" else placing.device
    # Prompts that the model's files lack; pooling and normalization are in them.
    prompts = {key: value for key, value in family_of(str(model)).items() if key.endswith("_prompt")}
    known = {**prompts, **folder_prompts(folder), **chosen}
    return _Transformer(SentenceTransformer(str(folder), device=device), known)
