"""Many strings as one text, to find which of them hold a part without testing each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_END = b"\0"
_BLOCK = 1 << 18  # so much of the text stays in a core's cache between the comparisons
_SAMPLE = 1 << 20


class Haystack:
    """Strings, searched together: UTF-8 parts begin and end where characters do, so bytes can be compared."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        joined = _END.join([*encoded, b""])
        self._text = np.frombuffer(joined, dtype=np.uint8)
        self._ends = np.fromiter(accumulate(len(s) + 1 for s in encoded), dtype=np.int64, count=len(encoded))
        self._clean = joined.count(_END) == len(encoded)
        self._common = np.bincount(self._text[:_SAMPLE], minlength=256)

    def holding(self, needle: str) -> NDArray[np.bool_]:
        """Which strings have the needle, which is not empty, as a part: bool[n]."""
        found = np.zeros(len(self._strings), dtype=np.bool_)
        if not self._clean or "\0" in needle:
            found[:] = [needle in string for string in self._strings]
            return found
        places = self._places(np.frombuffer(needle.encode("utf-8", "surrogatepass"), dtype=np.uint8))
        found[np.searchsorted(self._ends, places, side="right")] = True
        return found

    def _places(self, needle: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Where the needle begins: its two rarest bytes are compared everywhere, the others where those two fit."""
        first, *others = np.argsort(self._common[needle], kind="stable").tolist()
        text, n = self._text, len(self._text) - len(needle) + 1
        found = [np.zeros(0, dtype=np.int64)]
        for start in range(0, n, _BLOCK):
            end = min(n, start + _BLOCK)
            fits = text[start + first : end + first] == needle[first]
            if others:
                fits &= text[start + others[0] : end + others[0]] == needle[others[0]]
            places = np.flatnonzero(fits) + start
            for at in others[1:]:
                if not len(places):
                    break
                places = places[text[places + at] == needle[at]]
            found.append(places)
        return np.concatenate(found)
