"""Texts counted by several processes, ahead of whoever asks for their counts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from sidr_rag.errors import SidrError
from sidr_rag.text.counting import gathered
from sidr_rag.text.counting_process import receive, send
from sidr_rag.types import TokenCounts

if TYPE_CHECKING:
    from types import TracebackType

    from sidr_rag.text.tokenizer import BagTokenizer

T = TypeVar("T")

# A process of its own kind, not of `multiprocessing`: that would run the caller's main module again in every process.
# The search path is the parent's, handed over as data; -I keeps the environment from adding to it.
_START = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from sidr_rag.text.counting_process import main; main()"
)
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_BATCH_TEXTS, _BATCH_CHARS = 2048, 1 << 20
_AHEAD_TEXTS, _AHEAD_CHARS = 1 << 15, 1 << 25  # enough for the processes while the caller stores what they counted
_WORTH_TEXTS, _WORTH_CHARS = 4096, 1 << 22  # fewer are counted sooner than a process has started


@dataclass
class _Batch(Generic[T]):
    """Some items in order, with their texts and what becomes of them."""

    items: list[T]
    texts: list[str]
    n_chars: int = 0
    counts: Future[TokenCounts] | None = None


class CountingWorkers(Generic[T]):
    """Reads items ahead, has their texts counted by other processes, and gives the counts to whoever asks for them.

    For one thread; a context manager, at whose end the processes end. They start when there is enough to count.
    """

    def __init__(self, tokenizer: BagTokenizer, n_workers: int) -> None:
        """Nothing runs yet.

        Args:
            tokenizer: its settings travel to the processes, what it remembers does not.
            n_workers: how many processes, at least 1.
        """
        self._tokenizer = tokenizer
        self._n_workers = n_workers
        self._threads: ThreadPoolExecutor | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._given: list[_Batch[T]] = []  # whose items were handed out since counts were last asked for
        self._found: dict[str, tuple[_Batch[T], int]] = {}

    def __enter__(self) -> CountingWorkers[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ahead(self, items: Iterable[T], text_of: Callable[[T], str]) -> Iterator[T]:
        """The same items, handed out while the texts of later ones are counted.

        What reading an item raises is raised in its place, after those before it were handed out.
        """
        batches: deque[_Batch[T]] = deque()
        source = _Source(iter(items), text_of)
        n_texts = n_chars = 0
        while True:
            while not source.ended and n_texts < _AHEAD_TEXTS and n_chars < _AHEAD_CHARS:
                batch = source.batch()
                batches.append(batch)
                n_texts, n_chars = n_texts + len(batch.items), n_chars + batch.n_chars
                if self._threads is not None or n_texts >= _WORTH_TEXTS or n_chars >= _WORTH_CHARS:
                    for waiting in batches:
                        self._submit(waiting)
            if not batches:
                break
            batch = batches.popleft()
            n_texts, n_chars = n_texts - len(batch.items), n_chars - batch.n_chars
            self._given.append(batch)
            self._found.update((text, (batch, row)) for row, text in enumerate(batch.texts))
            yield from batch.items
        if source.error is not None:
            raise source.error

    def counts(self, texts: Iterable[str]) -> TokenCounts:
        """The counts of texts, waited for if they are on their way; counted here if nobody does.

        Raises:
            SidrError: if a process was ended from outside.
        """
        parts: dict[int, TokenCounts] = {}
        places: list[tuple[int, int]] = []
        others: list[str] = []
        for text in texts:
            batch, row = self._found.get(text, (None, 0))
            if batch is None or batch.counts is None:
                places.append((-1, len(others)))
                others.append(text)
                continue
            if id(batch) not in parts:
                parts[id(batch)] = batch.counts.result()
            places.append((id(batch), row))
        parts[-1] = self._tokenizer.counts_here(others)
        self._forget(self._given[:-1])  # of the last batch, some items may still be on their way to the caller
        order = {key: i for i, key in enumerate(parts)}
        pairs = np.array([(order[key], row) for key, row in places], dtype=np.int64).reshape(-1, 2)
        return gathered(list(parts.values()), pairs[:, 0], pairs[:, 1])

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for process in self._processes:
            process.kill()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what is still in its buffer finds no reader
                        stream.close()
        self._processes.clear()

    def _forget(self, batches: list[_Batch[T]]) -> None:
        for batch in batches:
            for text in batch.texts:
                if self._found.get(text, (None, 0))[0] is batch:
                    del self._found[text]
        del self._given[: len(batches)]

    def _submit(self, batch: _Batch[T]) -> None:
        if self._threads is None:
            self._start()
        assert self._threads is not None
        if batch.counts is None:
            batch.counts = self._threads.submit(self._counted, batch.texts)

    def _start(self) -> None:
        """Start the processes, and a thread to talk with each of them.

        Raises:
            SidrError: if no further Python can be started.
        """
        if not sys.executable or getattr(sys, "frozen", False):
            raise SidrError("num_workers: this program has no Python of its own to start; use num_workers=0")
        command = [sys.executable, "-I", "-c", _START, json.dumps([entry for entry in sys.path if type(entry) is str])]
        environment = {**os.environ, **_ONE_THREAD}
        self._threads = ThreadPoolExecutor(self._n_workers, thread_name_prefix="sidr-count")
        for _ in range(self._n_workers):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            self._processes.append(process)
            self._idle.put(process)
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # it will be noticed when it is asked to count
                send(process.stdin, (self._tokenizer,))

    def _counted(self, texts: list[str]) -> TokenCounts:
        """Have texts counted by a process that has nothing else to do; on a thread."""
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = None
        with contextlib.suppress(OSError):
            send(process.stdin, texts)
            answer = receive(process.stdout)
        self._idle.put(process)
        if answer is None:
            raise SidrError(
                f"num_workers={self._n_workers}: a counting process {_end_of(process)}; nothing was stored. "
                "Try again with fewer, or with num_workers=0"
            )
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, TokenCounts)
        return answer


class _Source(Generic[T]):
    """Items in batches; an error ends them, and is kept."""

    def __init__(self, items: Iterator[T], text_of: Callable[[T], str]) -> None:
        self._items = items
        self._text_of = text_of
        self.ended = False
        self.error: BaseException | None = None

    def batch(self) -> _Batch[T]:
        """The next items; none at the end."""
        batch: _Batch[T] = _Batch([], [])
        while len(batch.items) < _BATCH_TEXTS and batch.n_chars < _BATCH_CHARS:
            try:
                item = next(self._items)
            except StopIteration:
                self.ended = True
                break
            except Exception as error:
                self.ended, self.error = True, error
                break
            text = self._text_of(item)
            batch.items.append(item)
            batch.texts.append(text)
            batch.n_chars += len(text)
        return batch


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """How a process came to its end."""
    try:
        status = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return "answers no more"
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}" + (" (out of memory?)" if status == -signal.SIGKILL else "")
