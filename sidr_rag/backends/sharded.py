"""A `SiDR` over the stores in several folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sidr_rag.backends.sharded_store import ShardedStore
from sidr_rag.encoder import Encoder
from sidr_rag.engine import SiDR
from sidr_rag.errors import InvalidTypeError
from sidr_rag.index.folder import Folder
from sidr_rag.index.store import Store
from sidr_rag.options import WeightingChoice, new_settings, resolve_weighting, split_options, stored_weighting
from sidr_rag.search.weighting import Weighting


class ShardedSiDR(SiDR):
    """A `SiDR` over several folders; see `open_all` and `ShardedStore`."""

    @classmethod
    def open_all(
        cls,
        paths: Sequence[str | Path],
        *,
        create: bool = False,
        read_only: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: WeightingChoice | None = None,
        **options: Any,
    ) -> ShardedSiDR:
        """Open the stores in several folders as one.

        Args:
            paths: the folders, in the order that settles ties.
            create: make an empty store where there is none.
            read_only: never write to the folders.
            model: the model that the stores were made for.
            device: "auto", "cpu" or "cuda".
            weighting: None uses what the first store was made with.
            options: as for `SiDR.open`.

        Raises:
            IndexFormatError: if a folder is no store.
            InvalidInputError: if there are no folders, or the stores differ in levels.
            InvalidTypeError: if `paths` is no list.
        """
        if isinstance(paths, (str, bytes, Path)):
            raise InvalidTypeError(f"paths is a {type(paths).__name__}; give a list of folders")
        encoder, rest = split_options(model, device, options)
        shards: list[Store] = []
        try:
            for path in map(Path, paths):
                if create and not read_only and not Folder(path).is_store():
                    settings = shards[0].settings if shards else new_settings(weighting or "default", encoder)
                    shards.append(Store.create(path, settings, encoder.tokenizer))
                else:
                    shards.append(Store.open(path, encoder.tokenizer, read_only=read_only))
            return cls.of(shards, encoder, weighting, device=device, **rest)
        except BaseException:
            for shard in shards:
                shard.close()
            raise

    @classmethod
    def of(
        cls, shards: Sequence[Store], encoder: Encoder, weighting: WeightingChoice | None = None, **options: Any
    ) -> ShardedSiDR:
        """Over stores that are open; they are closed with this object."""
        joined: Any = ShardedStore(shards)
        choice = stored_weighting(joined.settings) if weighting is None else weighting
        chosen: Weighting = resolve_weighting(choice, encoder)
        return cls(joined, encoder, chosen, **options)

    def check_ids(self) -> None:
        """Refuse shards that share an id; see `ShardedStore.check_ids`."""
        self._store.check_ids()  # type: ignore[attr-defined]

    def info(self) -> dict[str, Any]:
        """Facts about the shards together, and where they are."""
        shards: Sequence[Store] = self._store.shards  # type: ignore[attr-defined]
        return {
            **super().info(),
            "shards": [None if s.folder is None else str(s.folder.path) for s in shards],
            "passages_of_shards": [s.current().n_live for s in shards],
        }

    def __repr__(self) -> str:
        return f"ShardedSiDR({len(self)} passages, model {self._encoder.config.name!r})"
