"""Metadata by column: for each key of a segment's passages, a code per row and the distinct values behind the codes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError
from sidr_rag.index.haystack import Haystack
from sidr_rag.search.filters import And, Condition, Filter, Not, Or
from sidr_rag.search.json_values import Canonical, canonical

_EXACT = 1 << 53  # integers below it are exact in float64
_MANY = 1000  # from so many values on, texts are looked for in all of them at once


class Column:
    """One key's values in all rows.

    Attributes:
        codes: u8, u16 or u32 [n_rows]; 0 where the key is missing, else 1 + the position of the row's value.
        n_values: number of distinct values.
        values_json: a JSON list of them, as UTF-8.
    """

    def __init__(self, codes: NDArray[Any], n_values: int, values_json: bytes) -> None:
        self.codes = codes
        self.n_values = n_values
        self.values_json = values_json

    @cached_property
    def values(self) -> list[Any]:
        """The distinct values; read on first use, since most keys are never filtered by.

        Raises:
            IndexFormatError: if they are not as many as the codes need.
        """
        try:
            found = json.loads(self.values_json)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or len(found) != self.n_values:
            raise IndexFormatError(f"a segment's metadata column should hold {self.n_values} values, and does not")
        return found

    @cached_property
    def _code_of_string(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values, start=1) if isinstance(value, str)}

    @cached_property
    def _codes_of_others(self) -> dict[Canonical, list[int]]:
        """Codes by canonical value: 1 and 1.0 are stored apart and equal to each other."""
        codes: dict[Canonical, list[int]] = {}
        for code, value in enumerate(self.values, start=1):
            if not isinstance(value, str):
                codes.setdefault(canonical(value), []).append(code)
        return codes

    def _codes_of(self, wanted: Canonical) -> list[int]:
        if wanted[0] != "string":
            return self._codes_of_others.get(wanted, [])
        code = self._code_of_string.get(wanted[1])
        return [] if code is None else [code]

    @cached_property
    def _has_lists(self) -> bool:
        return any(isinstance(value, list) for value in self.values)

    @cached_property
    def _haystacks(self) -> dict[str, Haystack]:
        """The strings among the values, as they are and with their case folded."""
        strings = [value if isinstance(value, str) else "" for value in self.values]
        return {"contains": Haystack(strings), "text_match": Haystack([value.casefold() for value in strings])}

    @cached_property
    def _numbers(self) -> NDArray[np.float64] | None:
        """The values as numbers, NaN where they are none; None if float64 could not tell some of them apart."""
        numbers = np.full(len(self.values), np.nan)
        for i, value in enumerate(self.values):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if isinstance(value, int) and abs(value) > _EXACT:
                    return None
                numbers[i] = value
        return numbers

    def mask(self, condition: Condition) -> NDArray[np.bool_]:
        """Which rows the condition holds for: bool[n_rows]. It is decided once for each distinct value."""
        hits = np.empty(len(self.values) + 1, dtype=np.bool_)
        hits[0] = condition.holds_without()
        if len(condition.path) == 1 and condition.op in ("eq", "in", "ne", "nin"):
            wanted = condition.operand if condition.op in ("in", "nin") else [condition.operand]
            hits[1:] = condition.op in ("ne", "nin")
            for value in wanted:
                for code in self._codes_of(value):
                    hits[code] = condition.op in ("eq", "in")
        elif (compared := self._compared(condition)) is not None:
            hits[1:] = compared
        elif (found := self._containing(condition)) is not None:
            hits[1:] = found
        else:
            hits[1:] = [condition.holds_for(value) for value in self.values]
        rows: NDArray[np.bool_] = hits[self.codes]
        return rows

    def _compared(self, condition: Condition) -> NDArray[np.bool_] | None:
        if len(condition.path) != 1 or condition.op not in ("gt", "gte", "lt", "lte"):
            return None
        kind, bound = condition.operand
        if kind != "number" or (isinstance(bound, int) and abs(bound) > _EXACT) or self._numbers is None:
            return None
        compare = {"gt": np.greater, "gte": np.greater_equal, "lt": np.less, "lte": np.less_equal}[condition.op]
        with np.errstate(invalid="ignore"):
            return np.asarray(compare(self._numbers, bound), dtype=np.bool_)

    def _containing(self, condition: Condition) -> NDArray[np.bool_] | None:
        """Which values hold a text, if one pass over all of them together can say."""
        if len(condition.path) != 1 or condition.op not in ("contains", "text_match") or self.n_values < _MANY:
            return None
        kind, needle = condition.operand
        if kind != "string" or not needle or self._has_lists:
            return None
        return self._haystacks[condition.op].holding(needle)


@dataclass(frozen=True)
class Columns:
    """The metadata of a segment's rows.

    Attributes:
        n_rows: number of rows.
        by_key: one column for each top-level key that any row has.
    """

    n_rows: int
    by_key: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, metadatas: Iterable[Mapping[str, Any]]) -> Columns:
        """From the rows' metadata, in row order."""
        n_rows = 0
        rows: dict[str, list[int]] = {}
        codes: dict[str, list[int]] = {}
        known: dict[str, dict[Any, int]] = {}
        values: dict[str, list[Any]] = {}
        for row, metadata in enumerate(metadatas):
            n_rows = row + 1
            for key, value in metadata.items():
                spelled = (
                    (type(value), value) if _is_plain(value) else json.dumps(value, sort_keys=True, ensure_ascii=False)
                )
                seen = known.setdefault(key, {})
                code = seen.get(spelled)
                if code is None:
                    code = seen[spelled] = len(seen) + 1
                    values.setdefault(key, []).append(value)
                rows.setdefault(key, []).append(row)
                codes.setdefault(key, []).append(code)
        columns = {}
        for key, places in rows.items():
            column = np.zeros(n_rows, dtype=_code_type(len(values[key])))
            column[places] = codes[key]
            columns[key] = Column(column, len(values[key]), _dumped(values[key]))
        return cls(n_rows, columns)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Columns, NDArray[np.bool_]]]) -> Columns:
        """The kept rows of several segments, one after the other."""
        counts = [int(np.count_nonzero(keep)) for _, keep in parts]
        n_rows = sum(counts)
        columns = {}
        for key in sorted({key for part, _ in parts for key in part.by_key}):
            known: dict[Any, int] = {}
            values: list[Any] = []
            merged = np.zeros(n_rows, dtype=np.uint32)
            start = 0
            for (part, keep), count in zip(parts, counts, strict=True):
                column = part.by_key.get(key)
                if column is not None and count:
                    kept = column.codes[keep]
                    renamed = np.zeros(len(column.values) + 1, dtype=np.uint32)
                    for code in np.unique(kept[kept > 0]).tolist():
                        value = column.values[code - 1]
                        spelled = (
                            (type(value), value)
                            if _is_plain(value)
                            else json.dumps(value, sort_keys=True, ensure_ascii=False)
                        )
                        if spelled not in known:
                            known[spelled] = len(known) + 1
                            values.append(value)
                        renamed[code] = known[spelled]
                    merged[start : start + count] = renamed[kept]
                start += count
            if values:
                columns[key] = Column(merged.astype(_code_type(len(values))), len(values), _dumped(values))
        return cls(n_rows, columns)

    def mask(self, condition: Filter) -> NDArray[np.bool_]:
        """Which rows match: bool[n_rows]."""
        if isinstance(condition, And):
            parts = [self.mask(part) for part in condition.parts]
            return np.logical_and.reduce(parts) if parts else np.ones(self.n_rows, dtype=np.bool_)
        if isinstance(condition, Or):
            parts = [self.mask(part) for part in condition.parts]
            return np.logical_or.reduce(parts) if parts else np.zeros(self.n_rows, dtype=np.bool_)
        if isinstance(condition, Not):
            return ~self.mask(condition.part)
        assert isinstance(condition, Condition)
        column = self.by_key.get(condition.path[0])
        if column is None:
            return np.full(self.n_rows, condition.holds_without(), dtype=np.bool_)
        return column.mask(condition)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a segment file keeps of them."""
        keys = list(self.by_key)
        arrays: dict[str, NDArray[Any]] = {"meta.keys": np.frombuffer(_dumped(keys), dtype=np.uint8)}
        for i, key in enumerate(keys):
            arrays[f"meta.{i}.codes"] = self.by_key[key].codes
            arrays[f"meta.{i}.values"] = np.frombuffer(self.by_key[key].values_json, dtype=np.uint8)
            arrays[f"meta.{i}.n_values"] = np.array([self.by_key[key].n_values], dtype=np.uint32)
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_rows: int) -> Columns:
        """From what `arrays` gave.

        Raises:
            ValueError: if a part does not fit the rows; KeyError, if one is missing.
        """
        keys = json.loads(arrays["meta.keys"].tobytes())
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("metadata keys are unreadable")
        columns = {}
        for i, key in enumerate(keys):
            codes, n_values = arrays[f"meta.{i}.codes"], arrays[f"meta.{i}.n_values"]
            if len(codes) != n_rows or codes.dtype not in (np.uint8, np.uint16, np.uint32) or len(n_values) != 1:
                raise ValueError("metadata codes do not fit the rows")
            if n_rows and int(codes.max()) > int(n_values[0]):
                raise ValueError("metadata codes point outside the values")
            columns[key] = Column(codes, int(n_values[0]), arrays[f"meta.{i}.values"].tobytes())
        return cls(n_rows, columns)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _code_type(n_values: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if n_values < 256 else np.uint16 if n_values < 65_536 else np.uint32


def _dumped(values: list[Any]) -> bytes:
    # Not as ASCII: two halves of a surrogate pair would come back as one character.
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
