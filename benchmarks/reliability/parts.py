"""The pieces of a SiDR, loaded once, so that a store can be opened in milliseconds and after a fork."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidr_rag import SiDR
from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.index.folder import StoreSettings
from sidr_rag.index.store import Store
from sidr_rag.options import new_settings, resolve_weighting
from sidr_rag.search.weighting import Weighting


@dataclass(frozen=True)
class Parts:
    """The bundled encoder (its weights are not read before they are needed) and what belongs to it."""

    encoder: Encoder
    settings: StoreSettings
    weighting: Weighting

    @classmethod
    def load(cls) -> Parts:
        """The bundled model's parts."""
        encoder = load_encoder("default", device="cpu", backend="numpy")
        return cls(encoder, new_settings("default", encoder), resolve_weighting("default", encoder))

    def create(self, path: Path) -> SiDR:
        """An empty store in a new folder."""
        return self._over(Store.create(path, self.settings, self.encoder.tokenizer))

    def open(self, path: Path, *, read_only: bool = False) -> SiDR:
        """The store in a folder."""
        return self._over(Store.open(path, self.encoder.tokenizer, read_only=read_only))

    def memory(self) -> SiDR:
        """An empty store without a folder."""
        return self._over(Store.in_memory(self.settings, self.encoder.tokenizer))

    def _over(self, store: Store) -> SiDR:
        return SiDR(store, self.encoder, self.weighting, num_threads=1, kernel="numpy")


def in_child(work: Callable[[], Any]) -> Any:
    """Run `work` in a forked child and give back its JSON result; this process opens no store and no thread for it.

    Raises:
        AssertionError: if the child raises or is ended by a signal; the message holds its traceback or the signal.
    """
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(source)
        try:
            answer = {"value": work()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        with os.fdopen(sink, "w", encoding="utf-8") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, encoding="utf-8") as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        raise AssertionError(f"the child ended without a result, wait status {status}")
    answer = json.loads(text)
    if "error" in answer:
        raise AssertionError(answer["error"])
    return answer["value"]
