"""Seeded random calls on a store: parent and child work out the same ones, each on its own."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.reliability.model import Ask, Doc, Model, OnConflict, add_docs
from benchmarks.reliability.parts import Parts
from sidr_rag import SiDR

Kind = Literal["add", "delete", "compact", "purge", "save", "reopen"]
_KINDS: tuple[Kind, ...] = ("add", "delete", "compact", "purge", "save", "reopen")
_SHARES = (50, 22, 8, 6, 6, 8)
_IDS = 400
# fmt: off
_WORDS = (
    "amber", "beryl", "coral", "delta", "ember", "fjord", "grove", "heron", "island", "jasper", "kernel", "lagoon",
    "meadow", "nectar", "orchid", "pebble", "quartz", "raven", "saffron", "timber", "umbra", "velvet", "willow",
    "xenon", "yonder", "zephyr", "anchor", "bridge", "cavern", "desert",
)
# fmt: on
ASKS = (
    Ask("amber"),
    Ask("zephyr willow quartz"),
    Ask("heron island", k=7),
    Ask("delta coral", filter={"group": {"in": [1, 3]}}),
    Ask("nothing-of-this-kind"),
)


@dataclass(frozen=True)
class Call:
    """One call of the public API."""

    kind: Kind
    items: tuple[tuple[str, Doc], ...] = ()
    ids: tuple[str, ...] = ()
    on_conflict: OnConflict = "replace"

    def apply(self, model: Model) -> None:
        """What the call does to the passages."""
        if self.kind == "add":
            model.add(self.items, self.on_conflict)
        elif self.kind == "delete":
            model.delete(self.ids)

    def perform(self, sidr: SiDR, parts: Parts, copy: Path) -> SiDR:
        """Do it; gives the store to go on with."""
        if self.kind == "add":
            add_docs(sidr, self.items, self.on_conflict)
        elif self.kind == "delete":
            sidr.delete(self.ids)
        elif self.kind == "save":
            sidr.save(copy)
        elif self.kind == "reopen":
            folder = sidr.path
            assert folder is not None
            sidr.close()
            return parts.open(folder)
        else:
            sidr.compact(purge=self.kind == "purge")
        return sidr


def random_doc(rng: random.Random) -> Doc:
    """A passage of a few words of a small vocabulary, so that searches find many."""
    text = " ".join(rng.choices(_WORDS, k=rng.choice((0, 3, 8, 20, 40))))
    title = rng.choice((None, None, "", rng.choice(_WORDS)))
    return Doc(text, title, {"group": rng.randrange(5), "stamp": rng.getrandbits(32)})


def next_call(rng: random.Random, model: Model) -> Call:
    """The next call of a script; depends on nothing but its arguments."""
    kind = rng.choices(_KINDS, _SHARES)[0]
    if kind == "add":
        n = rng.choice((1, 1, 2, 5, 20, 200))
        ids = [f"p{rng.randrange(_IDS)}" for _ in range(n)]
        items = tuple((i, random_doc(rng)) for i in ids)
        return Call("add", items, on_conflict=rng.choice(("replace", "replace", "replace", "skip")))
    if kind == "delete":
        living = list(model.docs)
        ids = rng.sample(living, min(len(living), rng.choice((1, 3, 10, 80))))
        return Call("delete", ids=(*ids, "never-there"))
    return Call(kind)
