"""Spelling variants of the same text made equal before it is tokenized; the stored text stays as it was given."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NORMALIZER_VERSION: Final = 1
"""Rises whenever `normalize` gives another result for any text; part of every tokenizer's fingerprint."""

_SEPARATORS = "\x0b\x0c\x1c-\x1f\x85\ufffd\ud800-\udfff\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_SUPERSCRIPT = "¹²³⁰⁴-⁹"
_SUBSCRIPT = "₀-₉"
_ROMAN = "Ⅰ-ⅿ"
_UNITS = "㍸㍹㎟-㎦㎨㎯"  # squared units whose expansion ends in a digit
_NUMBERS = (  # characters that stand for a whole number and expand to something that starts or ends with a digit
    "¼-¾⅐-⅟↉"  # fractions
    "①-⒛⓪㉑-㉟㊱-㊿"  # enclosed numbers
    "\U0001f100-\U0001f10a"  # digits with full stop or comma
    "㋀-㋋㍘-㍰㏠-㏾"  # months, hours and days
)

_ASCII_ODD = re.compile("[\0\x0b\x0c\x1c-\x1f]")
_SEPARATOR = re.compile(f"[{_SEPARATORS}]")
_EXPANDING = re.compile(f"[{_SUPERSCRIPT}{_SUBSCRIPT}{_ROMAN}{_UNITS}{_NUMBERS}]")
_SEAM = re.compile(
    rf"(?<=\S)(?=[{_NUMBERS}])|(?<=[{_NUMBERS}])(?=\S)"
    rf"|(?<=[^\s{_ROMAN}])(?=[{_ROMAN}])|(?<=[{_ROMAN}])(?=[^\s{_ROMAN}])"
    # Letters keep their index (CO₂ and CO2, m² and m2 are one spelling); digits do not (10² is not 102).
    rf"|(?<=[\d{_UNITS}])(?=[{_SUPERSCRIPT}{_SUBSCRIPT}])|(?<=[{_SUPERSCRIPT}{_SUBSCRIPT}{_UNITS}])(?=\d)"
    rf"|(?<=[{_SUPERSCRIPT}])(?=[{_SUBSCRIPT}])|(?<=[{_SUBSCRIPT}])(?=[{_SUPERSCRIPT}])"
)

_BESIDE_OTHERS = re.compile(f"[{_SUPERSCRIPT}{_SUBSCRIPT}{_ROMAN}{_UNITS}]")
_JAMO = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")  # vowels and finals: they compose with the initial before them
_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def normalize(text: str) -> str:
    """The spelling that is indexed: NFKC, with words and numbers kept apart.

    - Compatibility characters take their plain spelling: ligatures, full-width letters, superscripts, ...
    - A character that stands for a number (fractions, enclosed and Roman numbers, superscripts after a digit) is
      separated by a space from what it would otherwise merge with: "3½" gives "3 1⁄2", "10²" gives "10 2".
    - U+FFFD, private-use characters, lone surrogates, NEL and the control separators 0x0B, 0x0C, 0x1C-0x1F become
      spaces; NUL and soft hyphens are dropped.

    The result of a text is made of the results of its white-space-separated parts, and is a fixed point of the
    function. It depends on the Unicode data of the running Python (`unicodedata.unidata_version`).

    Args:
        text: any string, lone surrogates included.

    Returns:
        The normalized text; the same object where nothing had to change in an ASCII text.
    """
    if text.isascii():
        if _ASCII_ODD.search(text) is None:
            return text
        return _SEPARATOR.sub(" ", text.replace("\0", ""))
    text = _SEPARATOR.sub(" ", text.replace("\0", "").replace("\xad", ""))
    if _EXPANDING.search(text) is not None:
        text = _SEAM.sub(" ", text)
    return unicodedata.normalize("NFKC", text)


def is_contextual(character: str) -> bool:
    """Whether the spelling of a character in normalized text, or of what stands before it, can depend on both.

    So it is for indices, Roman numbers and squared units, and for whatever composes with the character before it:
    marks, and the vowels and finals of Hangul.
    """
    if _BESIDE_OTHERS.match(character):
        return True
    first = unicodedata.normalize("NFKD", character)[0]
    if unicodedata.category(first) in ("Mn", "Mc"):
        return _SELECTOR.match(first) is None
    return _JAMO.match(first) is not None
