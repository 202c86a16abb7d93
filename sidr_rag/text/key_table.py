"""A hash table of 16-byte keys whose look-ups and insertions are array operations, exact and without Python loops."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.ragged import with_room


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

    def numbers(
        self, low: NDArray[np.uint64], high: NDArray[np.uint64], next_number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look keys up; those not met before get `next_number`, `next_number + 1`, ...

        Returns:
            i64[n], the number of each key; and the positions of the new keys, in the order of their numbers.
        """
        self._make_room(len(low), next_number)
        slots = self._home(low, high)
        numbers = self._slots[slots].astype(np.int64)
        is_found = (self._low[numbers] == low) & (self._high[numbers] == high) & (numbers >= 0)
        waiting = np.flatnonzero(~is_found)
        new: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        while len(waiting):
            at = slots[waiting]
            free = self._slots[at] < 0
            claimants, places = waiting[free], at[free]
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
            found = self._slots[at]
            is_same = (self._low[found] == low[waiting]) & (self._high[found] == high[waiting])
            numbers[waiting[is_same]] = found[is_same]
            waiting = waiting[~is_same]
            slots[waiting] = (slots[waiting] + 1) & (len(self._slots) - 1)
        return numbers, np.concatenate(new)

    def _home(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int64]:
        mixed = low * self._factors[0] + high * self._factors[1]
        home: NDArray[np.int64] = (mixed >> np.uint64(65 - len(self._slots).bit_length())).astype(np.int64)
        return home

    def _make_room(self, n_keys: int, next_number: int) -> None:
        """Room for `n_keys` new keys, with at least half of the slots left free."""
        self._low = with_room(self._low, len(self._low), next_number + n_keys)
        self._high = with_room(self._high, len(self._high), next_number + n_keys)
        self._used = with_room(self._used, self._n_used, self._n_used + n_keys)
        needed = 2 * (self._n_used + n_keys)
        if needed <= len(self._slots):
            return
        self._slots = np.full(1 << (needed - 1).bit_length(), -1, dtype=np.int32)
        waiting = self._used[: self._n_used]
        slots = self._home(self._low[waiting], self._high[waiting])
        while len(waiting):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = waiting[free]
            is_left = self._slots[slots] != waiting
            waiting = waiting[is_left]
            slots = (slots[is_left] + 1) & (len(self._slots) - 1)
