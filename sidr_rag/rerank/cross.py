"""A cross-encoder as a second stage: it reads the question and a passage together and gives one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import note
from sidr_rag.encoder.resolve import resolve_model
from sidr_rag.encoder.windows import length_batches, windows
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.fork_lock import ForkLock
from sidr_rag.rerank.bert_files import bert_sizes, read_bert, read_config
from sidr_rag.rerank.bi_encoder import Placing, body_of
from sidr_rag.types import Passage

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Body
    from sidr_rag.text import BagTokenizer

_MAX_LENGTH = 512
_LEAST_PASSAGE = 16  # tokens that a long question must leave
_HEAD = ("pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias")
_WINDOWS_AT_ONCE = 256


class CrossEncoder:
    """A cross-encoder: `sidr.search(query, rerank=20, reranker=CrossEncoder("cross-encoder/ms-marco-MiniLM-L12-v2"))`.

    A `BertForSequenceClassification` with one output is run by the library's own code, with torch or without; its
    weights may be float, or 8-bit with scales. A loaded `CrossEncoder` of sentence-transformers is taken as well, for
    other architectures. A passage that does not fit beside the question is read in windows, and the best one counts
    (MaxP, Dai and Callan 2019). Nothing is remembered: a pair's score holds for that question alone. The weights are
    read at first use. Threads may share it.

    Args:
        model: a folder, a name on the Hugging Face hub (needs `[torch]` and a network on first use), or an object with
            `predict(pairs)`.
        max_length: tokens of question and passage together.
        backend: "auto" (torch where it is installed), "numpy" or "torch".
        device: "auto", "cpu" or "cuda".
        dtype: "float32", "bfloat16", or "auto" (bfloat16 in torch where the processor multiplies it); NumPy is float32.

    Raises:
        ModelNotFoundError: if the model is not on this machine and could not be fetched.
        InvalidInputError, InvalidTypeError: for arguments that cannot be used, or another kind of model.
    """

    def __init__(
        self,
        model: str | Path | Any,
        *,
        max_length: int | None = None,
        backend: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
    ) -> None:
        placing = Placing.of(backend, device, dtype)
        self._pairs: _Pairs | None = None
        self._predict: Any = None
        if isinstance(model, (str, Path)):
            self._pairs = _Pairs(resolve_model(model), max_length, placing)
            self.name = str(model)
        elif callable(getattr(model, "predict", None)):
            self._predict = model.predict
            self.name = type(model).__name__
        else:
            raise InvalidTypeError(
                f"model is a {type(model).__name__}; give a folder, a name or an object with predict(pairs)"
            )

    def __repr__(self) -> str:
        return f"CrossEncoder({self.name!r})"

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `sidr_rag.protocols.Reranker`; the first stage's scores play no part."""
        return self.scores(query, [passage.content for passage in passages])

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """One number for each text, f64[n]; higher is more relevant."""
        if not texts:
            return np.empty(0, np.float64)
        if self._pairs is not None:
            return self._pairs.scores(query, texts)
        found = np.asarray(self._predict([(query, text) for text in texts], show_progress_bar=False), dtype=np.float64)
        return found.reshape(len(texts))


class _Pairs:
    """A BERT classifier in a folder, run by the library's own code."""

    def __init__(self, folder: Path, max_length: int | None, placing: Placing) -> None:
        from sidr_rag.encoder.vocabulary_file import tokenizer_json
        from sidr_rag.text import BagTokenizer

        config = read_config(folder)
        sizes = bert_sizes(config)
        if sizes is None or "BertForSequenceClassification" not in (config.get("architectures") or ()):
            raise InvalidInputError(
                f"model: {folder} is no BertForSequenceClassification; load it with sentence-transformers and give its "
                "CrossEncoder object"
            )
        self._folder, self._sizes = folder, sizes
        source = folder / "tokenizer.json"
        content = source.read_text(encoding="utf-8") if source.is_file() else tokenizer_json(folder / "vocab.txt")
        self._tokenizer: BagTokenizer = BagTokenizer(content, normalization="none")
        self._length = min(max_length or _MAX_LENGTH, sizes.max_position_embeddings)
        if self._length < 2 * _LEAST_PASSAGE:
            raise InvalidInputError(f"max_length={self._length} is too small; give at least {2 * _LEAST_PASSAGE}")
        self._placing = placing
        self._lock = ForkLock()
        self._loaded: tuple[Body, Mapping[str, NDArray[np.float32]]] | None = None

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        body, head = self._model()
        first, last = self._tokenizer.special_ids["cls"], self._tokenizer.special_ids["sep"]
        asked = self._tokenizer.sequence_ids(query)[: self._length - 3 - _LEAST_PASSAGE]
        start = [first, *asked, last]
        items: list[tuple[int, Sequence[int]]] = []
        n_tokens = 0
        for i, text in enumerate(texts):
            ids = self._tokenizer.sequence_ids(text)
            n_tokens += len(ids) + len(asked)
            items += [(i, [*start, *w, last]) for w in windows(ids, self._length - len(start) - 1)]
        note(passage_tokens=n_tokens)
        best = np.full(len(texts), -np.inf)
        for batch in length_batches(items, body.batch_tokens, _WINDOWS_AT_ONCE):
            kinds = [[0] * len(start) + [1] * (len(ids) - len(start)) for _, ids in batch]
            states = body.summaries([ids for _, ids in batch], "cls", kinds)
            pooled = np.tanh(states @ head["pooler.dense.weight"].T + head["pooler.dense.bias"])
            logits = pooled @ head["classifier.weight"][0] + head["classifier.bias"][0]
            for (i, _), logit in zip(batch, logits.tolist(), strict=True):
                best[i] = max(best[i], logit)
        return best

    def _model(self) -> tuple[Body, Mapping[str, NDArray[np.float32]]]:
        with self._lock:
            if self._loaded is None:
                weights = read_bert(self._folder, self._sizes, _HEAD)
                if weights["classifier.weight"].shape != (1, self._sizes.hidden_size):
                    raise InvalidInputError(
                        f"model: {self._folder} has {len(weights['classifier.weight'])} outputs; expected one score"
                    )
                body = body_of(weights, self._sizes, self._placing)
                self._loaded = body, {name: weights[name] for name in _HEAD}
            return self._loaded
