"""Strings of bytes to numbers at array speed: an exact hash table of 16-byte keys, a dictionary for what is longer."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.ragged import with_room

KEY_BYTES = 16
_LONGEST_KEPT = 64  # longer strings rarely come twice and would fill the memory
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)


class KeyTable:
    """Keys, given as two unsigned 64-bit halves, to the numbers they got when they were first met."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots = np.full(1 << 10, -1, dtype=np.int32)  # number of the key at home here; -1: free
        self._low = np.empty(1 << 10, dtype=np.uint64)  # by number
        self._high = np.empty(1 << 10, dtype=np.uint64)
        self._used = np.empty(1 << 10, dtype=np.int32)
        self._n_used = 0
        # Nobody who writes a text can know which words collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(2)]

    def find(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int64]:
        """i64[n], the number of each key, or -1."""
        return self._find(low, high)[0]

    def numbers(
        self, low: NDArray[np.uint64], high: NDArray[np.uint64], next_number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look keys up; those not met before get `next_number`, `next_number + 1`, ...

        Returns:
            i64[n], the number of each key; and the positions of the new keys, in the order of their numbers.
        """
        numbers, slots, waiting = self._find(low, high)
        new: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        if self._make_room(len(waiting), next_number):
            slots = self._home(low[waiting], high[waiting])
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
            self._low[given], self._high[given] = low[winners], high[winners]
            self._used[self._n_used : self._n_used + len(given)] = given
            self._n_used += len(given)
            new.append(winners)
            found = self._slots[slots]
            is_same = (self._low[found] == low[waiting]) & (self._high[found] == high[waiting])
            numbers[waiting[is_same]] = found[is_same]
            waiting = waiting[~is_same]
            slots = (slots[~is_same] + 1) & (len(self._slots) - 1)
        return numbers, np.concatenate(new)

    def _find(
        self, low: NDArray[np.uint64], high: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers; and of the absent keys the free slot where each search ended, and their positions."""
        slots = self._home(low, high)
        numbers = self._slots.take(slots).astype(np.int64)
        differs = self._low.take(numbers, mode="wrap") != low
        differs |= self._high.take(numbers, mode="wrap") != high
        differs |= numbers < 0
        waiting = np.flatnonzero(differs)
        slots = slots[waiting]
        absent: list[NDArray[np.int64]] = []
        ends: list[NDArray[np.int64]] = []
        while len(waiting):
            found = self._slots[slots]
            is_free = found < 0
            absent.append(waiting[is_free])
            ends.append(slots[is_free])
            is_same = (self._low[found] == low[waiting]) & (self._high[found] == high[waiting]) & ~is_free
            numbers[waiting[is_same]] = found[is_same]
            is_left = ~(is_free | is_same)
            waiting = waiting[is_left]
            slots = (slots[is_left] + 1) & (len(self._slots) - 1)
        none = np.empty(0, np.int64)
        missing = np.concatenate([none, *absent])
        numbers[missing] = -1
        return numbers, np.concatenate([none, *ends]), missing

    def _home(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int64]:
        mixed = low * self._factors[0]
        mixed += high * self._factors[1]
        mixed >>= np.uint64(65 - len(self._slots).bit_length())
        home: NDArray[np.int64] = mixed.view(np.int64)
        return home

    def _make_room(self, n_keys: int, next_number: int) -> bool:
        """Room for `n_keys` new keys, with at least half of the slots left free; whether the slots are new ones."""
        self._low = with_room(self._low, len(self._low), next_number + n_keys)
        self._high = with_room(self._high, len(self._high), next_number + n_keys)
        self._used = with_room(self._used, self._n_used, self._n_used + n_keys)
        needed = 2 * (self._n_used + n_keys)
        if needed <= len(self._slots):
            return False
        self._slots = np.full(1 << (needed - 1).bit_length(), -1, dtype=np.int32)
        waiting = self._used[: self._n_used]
        slots = self._home(self._low[waiting], self._high[waiting])
        while len(waiting):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = waiting[free]
            is_left = self._slots[slots] != waiting
            waiting = waiting[is_left]
            slots = (slots[is_left] + 1) & (len(self._slots) - 1)
        return True


class SpanNumbering:
    """Strings of bytes, given as places in a buffer, to the numbers 1, 2, 3, ... in the order they are first met.

    Strings of up to 16 bytes, nearly all, are looked up as arrays of keys, which NUL pads: a string is taken for the
    same without the NULs at its end, as it is to the tokenizers here. The empty string has the number 0. Strings of
    over 64 bytes are new every time.
    """

    def __init__(self) -> None:
        """Start with the empty string."""
        self._short = KeyTable()
        self._long: dict[bytes, int] = {}
        none = np.zeros(1, dtype=np.uint64)
        self._short.numbers(none, none, 0)
        self.count = 1

    def numbers(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look strings up; `data` goes on for 16 bytes after the last one.

        Returns:
            i64[n], the number of each; and the positions of the new ones, in the order of their numbers.
        """
        low, high = span_keys(data, starts, lengths)
        long = np.flatnonzero(lengths > KEY_BYTES)
        low[long] = high[long] = 0
        numbers, new = self._short.numbers(low, high, self.count)
        self.count += len(new)
        new_long = []
        for i, start, length in zip(long.tolist(), starts[long].tolist(), lengths[long].tolist(), strict=True):
            text = data[start : start + length]
            number = self._long.get(text)
            if number is None:
                number = self.count
                self.count += 1
                new_long.append(i)
                if length <= _LONGEST_KEPT:
                    self._long[text] = number
            numbers[i] = number
        return numbers, np.concatenate([new, np.array(new_long, dtype=np.int64)])


def span_keys(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.signedinteger[Any]]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Bytes 0-7 and 8-15 of strings, NUL after their ends; `data` goes on for 16 bytes after them.

    The lengths are of a signed type.
    """
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))  # the 8 bytes from each place on
    low = words[starts]
    low &= _FIRST_BYTES.take(lengths, mode="clip")
    high = words[8:][starts]
    high &= _FIRST_BYTES.take(lengths - 8, mode="clip")
    return low, high
