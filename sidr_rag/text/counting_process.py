"""A process that counts the dimensions of texts: it reads requests from standard input, and answers on standard output.

It lives as long as its standard input is open. Both ends are this library's own, so that messages may be pickled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import IO, Any

MARK = b"sidr-1\r\n"
"""What every message begins with: nothing else may write to the stream."""


def main() -> None:
    """Take the tokenizer's settings, then count lists of texts until there are no more."""
    from sidr_rag.text.tokenizer import BagTokenizer

    # A parent that was killed reads no answer: that is no error of this process.
    with (
        contextlib.suppress(BrokenPipeError),
        os.fdopen(os.dup(1), "wb") as answers,
        open(0, "rb", closefd=False) as requests,
    ):
        os.dup2(2, 1)  # whatever else is printed must not mix with the answers
        tokenizer: BagTokenizer | None = None
        while (request := receive(requests)) is not None:
            try:
                if tokenizer is None:
                    tokenizer = request[0]
                    assert isinstance(tokenizer, BagTokenizer)
                    continue
                answer: Any = tokenizer.counts(request)
            except Exception as error:
                answer = error
            send(answers, answer)


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message.

    Raises:
        OSError: if nobody reads the stream any more.
    """
    try:
        data = pickle.dumps(message, protocol=5)
    except Exception:  # of an error that cannot be pickled
        data = pickle.dumps(RuntimeError(f"{type(message).__name__} while counting"), protocol=5)
    stream.write(MARK + len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; None at the end of the stream, or if something else wrote to it."""
    head = stream.read(len(MARK) + 8)
    if len(head) < len(MARK) + 8 or not head.startswith(MARK):
        return None
    size = int.from_bytes(head[len(MARK) :], "little")
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None
