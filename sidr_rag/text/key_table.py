"""Strings of bytes to numbers at array speed: exact hash tables of short keys, a dictionary for what is longer."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.ragged import with_room

Key = tuple[NDArray[np.uint64], ...]
"""Keys of 8 bytes or a multiple of it: for each 8 bytes an array."""

_WIDTHS = (8, 16, 32)  # bytes of the keys of short, longer and long strings
PADDING_BYTES = _WIDTHS[-1]
"""How far a buffer must go on after the last string in it."""

_LONGEST_KEPT = 64  # longer strings rarely come twice and would fill the memory
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)


class KeyTable:
    """Keys to the numbers they got when they were first met."""

    def __init__(self, width: int) -> None:
        """Start empty; the keys have `width` bytes, a multiple of 8."""
        self._slots = np.full(1 << 10, -1, dtype=np.int32)  # number of the key at home here; -1: free
        self._keys: Key = tuple(np.empty(1 << 10, dtype=np.uint64) for _ in range(width // 8))  # by number
        self._used = np.empty(1 << 10, dtype=np.int32)
        self._n_used = 0
        # Nobody who writes a text can know which words collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in self._keys]

    def find(self, key: Key) -> NDArray[np.int64]:
        """i64[n], the number of each key, or -1."""
        return self._find(key)[0]

    def numbers(self, key: Key, next_number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look keys up; those not met before get `next_number`, `next_number + 1`, ...

        Returns:
            i64[n], the number of each key; and the positions of the new keys, in the order of their numbers.
        """
        numbers, slots, waiting = self._find(key)
        new: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        if len(waiting) and self._make_room(len(waiting), next_number):
            slots = self._home(tuple(part[waiting] for part in key))
        while len(waiting):
            free = self._slots[slots] < 0
            claimants, places = waiting[free], slots[free]
            # Of several claimants of one place the one written last has it; equal keys find it there.
            marks = (-2 - claimants).astype(np.int32)
            self._slots[places] = marks
            won = self._slots[places] == marks
            winners, places = claimants[won], places[won]
            given = np.arange(next_number, next_number + len(winners), dtype=np.int32)
            next_number += len(winners)
            self._slots[places] = given
            for kept, part in zip(self._keys, key, strict=True):
                kept[given] = part[winners]
            self._used[self._n_used : self._n_used + len(given)] = given
            self._n_used += len(given)
            new.append(winners)
            found = self._slots[slots]
            is_same = self._is_key(found, tuple(part[waiting] for part in key))
            numbers[waiting[is_same]] = found[is_same]
            waiting = waiting[~is_same]
            slots = (slots[~is_same] + 1) & (len(self._slots) - 1)
        return numbers, np.concatenate(new)

    def _find(self, key: Key) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers; and of the absent keys the free slot where each search ended, and their positions."""
        slots = self._home(key)
        numbers = self._slots.take(slots).astype(np.int64)
        is_same = self._is_key(numbers, key)
        waiting = np.flatnonzero(~is_same)
        slots = slots[waiting]
        absent: list[NDArray[np.int64]] = []
        ends: list[NDArray[np.int64]] = []
        while len(waiting):
            found = self._slots[slots]
            is_free = found < 0
            absent.append(waiting[is_free])
            ends.append(slots[is_free])
            is_same = self._is_key(found, tuple(part[waiting] for part in key))
            numbers[waiting[is_same]] = found[is_same]
            is_left = ~(is_free | is_same)
            waiting = waiting[is_left]
            slots = (slots[is_left] + 1) & (len(self._slots) - 1)
        none = np.empty(0, np.int64)
        missing = np.concatenate([none, *absent])
        numbers[missing] = -1
        return numbers, np.concatenate([none, *ends]), missing

    def _is_key(self, numbers: NDArray[Any], key: Key) -> NDArray[np.bool_]:
        """Whether each number (-1: none) is that of the key beside it."""
        is_same = numbers >= 0
        for kept, part in zip(self._keys, key, strict=True):
            is_same &= kept.take(numbers, mode="wrap") == part
        return is_same

    def _home(self, key: Key) -> NDArray[np.int64]:
        mixed = key[0] * self._factors[0]
        for part, factor in zip(key[1:], self._factors[1:], strict=True):
            mixed += part * factor
        mixed >>= np.uint64(65 - len(self._slots).bit_length())
        home: NDArray[np.int64] = mixed.view(np.int64)
        return home

    def _make_room(self, n_keys: int, next_number: int) -> bool:
        """Room for `n_keys` new keys, with at least three in four slots left free; whether the slots are new ones."""
        self._keys = tuple(with_room(kept, len(kept), next_number + n_keys) for kept in self._keys)
        self._used = with_room(self._used, self._n_used, self._n_used + n_keys)
        needed = 4 * (self._n_used + n_keys)
        if needed <= len(self._slots):
            return False
        self._slots = np.full(1 << (needed - 1).bit_length(), -1, dtype=np.int32)
        waiting = self._used[: self._n_used]
        slots = self._home(tuple(kept[waiting] for kept in self._keys))
        while len(waiting):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = waiting[free]
            is_left = self._slots[slots] != waiting
            waiting = waiting[is_left]
            slots = (slots[is_left] + 1) & (len(self._slots) - 1)
        return True


class SpanNumbering:
    """Strings of bytes, given as places in a buffer, to the numbers 1, 2, 3, ... in the order they are first met.

    Strings of up to 32 bytes, nearly all, are looked up as arrays of keys, which NUL pads: a string is taken for the
    same without the NULs at its end. The empty string has the number 0. Strings of over 64 bytes are new every time.
    """

    def __init__(self) -> None:
        """Start with the empty string."""
        self._tables = [KeyTable(width) for width in _WIDTHS]
        self._long: dict[bytes, int] = {}
        for table, width in zip(self._tables, _WIDTHS, strict=True):
            table.numbers((np.zeros(1, dtype=np.uint64),) * (width // 8), 0)
        self.count = 1

    def numbers(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look strings up; `data` goes on for `PADDING_BYTES` after the last one.

        Returns:
            i64[n], the number of each; and the positions of the new ones, in the order of their numbers.
        """
        numbers, new = np.zeros(0, np.int64), np.empty(0, np.int64)
        at: NDArray[np.int64] | None = None  # None: all
        news: list[NDArray[np.int64]] = []
        for table, width in zip(self._tables, _WIDTHS, strict=True):
            key = span_keys(data, starts, lengths, width)
            longer = np.flatnonzero(lengths > width)
            for part in key:
                part[longer] = 0
            found, new = table.numbers(key, self.count)
            self.count += len(new)
            if at is None:
                numbers, at = found, longer
                news.append(new)
            else:
                numbers[at] = found
                news.append(at[new])
                at = at[longer]
            starts, lengths = starts[longer], lengths[longer]
            if not len(at):
                break
        else:
            assert at is not None
            news.append(self._number_long(data, at, starts, lengths, numbers))
        return numbers, np.concatenate(news)

    def _number_long(
        self,
        data: bytes,
        at: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Fill in the numbers of strings that no table takes; returns the positions of the new ones."""
        new = []
        for i, start, length in zip(at.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            text = data[start : start + length]
            number = self._long.get(text)
            if number is None:
                number = self.count
                self.count += 1
                new.append(i)
                if length <= _LONGEST_KEPT:
                    self._long[text] = number
            numbers[i] = number
        return np.array(new, dtype=np.int64)


def span_keys(data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.signedinteger[Any]], width: int) -> Key:
    """The first `width` bytes of strings, NUL after their ends; `data` goes on for so many bytes after them.

    The lengths are of a signed type.
    """
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))  # the 8 bytes from each place on
    key = []
    for first in range(0, width, 8):
        part = words[first:][starts]
        part &= _FIRST_BYTES.take(lengths - first if first else lengths, mode="clip")
        key.append(part)
    return tuple(key)
