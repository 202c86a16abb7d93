from __future__ import annotations

import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.files import Limits


def test_defaults():
    limits = Limits()
    assert (limits.max_file_bytes, limits.max_pages, limits.max_files) == (50_000_000, 2_000, 100_000)
    assert (limits.max_decompressed_bytes, limits.pdf_timeout_s) == (200_000_000, 60.0)


@pytest.mark.parametrize("value", [0, -1])
def test_value_out_of_range_is_named(value):
    with pytest.raises(InvalidInputError, match=rf"Limits.max_pages must be above 0.*{value}"):
        Limits(max_pages=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_seconds_must_be_finite_and_positive(value):
    with pytest.raises(InvalidInputError, match="pdf_timeout_s"):
        Limits(pdf_timeout_s=value)


@pytest.mark.parametrize("value", ["9", 1.5, True, None])
def test_wrong_type_is_named(value):
    with pytest.raises(InvalidTypeError, match=f"max_files must be a whole number, got {type(value).__name__}"):
        Limits(max_files=value)


def test_seconds_may_be_whole():
    assert Limits(pdf_timeout_s=5).pdf_timeout_s == 5
