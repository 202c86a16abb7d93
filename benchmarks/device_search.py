"""Beta search on a GPU at the paper's size, against torch.sparse and the speed of the memory; one prepared run.

On a machine with a GPU: `python -m benchmarks.device_search`, about five minutes. `--small` runs the same script on the
processor with a few thousand passages, and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.data import cut_passages, few_passages, few_questions, questions
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from sidr_rag import SiDR
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.columns import Columns
from sidr_rag.index.postings import CHUNK_WORDS, Postings, blocks_of, chunks_of
from sidr_rag.index.segment import Segment
from sidr_rag.search.device.searcher import DeviceSearcher
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import BINARY
from sidr_rag.types import SparseVectors, TokenCounts

_DISTINCT = 75
_ROWS = 1 << 18  # of a segment
_BATCHES = (1, 32, 128, 512)


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        passages: of the large index.
        sparse: of torch.sparse's index, per million of which its time is given.
        checked: compared with the processor, bit by bit.
        density: of the density and batch table.
        repeats: of each timing, after one that does not count.
    """

    passages: int
    sparse: int
    checked: int
    density: int
    repeats: int


_FULL = Sizes(21_000_000, 4_000_000, 500_000, 1_000_000, 10)
_SMALL = Sizes(2_000, 1_000, 1_000, 300, 1)


class Timer:
    """Milliseconds of calls on a device, medians."""

    def __init__(self, device: torch.device, repeats: int) -> None:
        self._device = device
        self._repeats = repeats

    def ms(self, call: Callable[[], object]) -> float:
        """One call that does not count, then the median of some that do."""
        times = []
        for _ in range(self._repeats + 1):
            self._wait()
            start = time.perf_counter()
            call()
            self._wait()
            times.append((time.perf_counter() - start) * 1000)
        return float(np.median(times[1:]))

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def main() -> None:
    """Measure, check, and write the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--passages", type=int, help="of the large index")
    arguments = parser.parse_args()
    sizes = _SMALL if arguments.small else _FULL
    device = torch.device("cpu" if arguments.small else "cuda")
    torch.manual_seed(1)
    rates = torch.from_numpy(_rates(few_passages(500) if arguments.small else cut_passages(20_000))).to(device)
    default = _default_queries(32 if arguments.small else max(_BATCHES))
    timer = Timer(device, sizes.repeats)
    n = arguments.passages or sizes.passages
    searcher = DeviceSearcher(str(device))
    index = _index(rates, n, device)
    start = time.perf_counter()
    searcher.search(index, _first(default, 1), BINARY, 10)
    hold_s = time.perf_counter() - start
    held = searcher.nbytes
    heavy = _flat_queries(rates, 32 if arguments.small else max(_BATCHES), 768)
    rows: list[list[Cell]] = []
    peaks = []
    for batch in (b for b in _BATCHES if b <= len(heavy)):
        flat = timer.ms(partial(searcher.search, index, _first(heavy, batch), BINARY, 10))
        own = timer.ms(partial(searcher.search, index, _first(default, batch), BINARY, 10))
        peaks.append(_peak(device))
        rows.append([batch, flat, own, peaks[-1] / 1e9])
    copy_ms = _copy_ms(held, device, timer)
    correct = _check(rates, sizes.checked, device, default)
    ours_32 = float(str(rows[1][1]))
    searcher.close()
    sparse_ms = _sparse_ms(rates, sizes.sparse, heavy, device, timer)
    density = list(_density(rates, sizes.density, device, timer, small=arguments.small))
    engine, agrees = _engine(device, timer, small=arguments.small)
    result = Result(
        "device_search",
        f"Beta search on a GPU, {n:,} passages",
        _method(n, sizes),
        ["torch.sparse CSR product and top-k", "one device-to-device copy of the index's bytes"],
        ["numpy", "torch", "triton"],
        "python -m benchmarks.device_search",
    )
    result.musts = [
        Must("a batch of 32 queries of 768 dimensions, ms", ours_32, 10.0),
        Must("memory on the device, peak of such batches, GB", peaks[1] / 1e9, 4.5),
        Must("torch.sparse per passage, times ours", sparse_ms / sizes.sparse / (ours_32 / n), 5.0, at_least=True),
        Must("sampled searches with other bits than the processor's", float(not (correct and agrees)), 0.0),
    ]
    result.tables = [
        Table(
            f"One batch, ms, top 10; {_device_name(device)}",
            ("queries", "768 dimensions, flat tail", "the default's own", "peak GB on the device"),
            rows,
        ),
        Table(
            "Beside it",
            ("what", "value"),
            [
                ["bytes of the index on the device", held],
                ["segments to the device and first answer, s", hold_s],
                ["one copy of these bytes on the device, ms", copy_ms],
                [f"torch.sparse, batch of 32, {sizes.sparse:,} passages, ms", sparse_ms],
                ["... per million passages, ms", sparse_ms / sizes.sparse * 1e6],
                ["ours per million passages, ms", ours_32 / n * 1e6],
            ],
        ),
        Table(
            f"Density and batch, {sizes.density:,} passages, 768 dimensions in a query",
            ("dimensions of a passage", "queries", "ms", "index, bytes a passage", "authors' CSR, bytes a passage"),
            density,
        ),
        Table(
            "Whole searches of `SiDR`, encoding included, ms, top 10",
            ("passages", "questions", "re-ranked", "device='cuda'", "device='cpu'"),
            engine,
        ),
    ]
    result.raw = {"device": _device_name(device), "passages": n}
    if arguments.small:
        result.show()
    else:
        result.write()


def _method(n: int, sizes: Sizes) -> list[str]:
    return [
        f"{n:,} synthetic passages drawn on the device, {_DISTINCT} distinct dimensions each on average, every one as "
        "often as in real passages of 100 words; one level, as in the paper. Heavy queries: 768 distinct dimensions "
        "drawn likewise, weights of a flat tail. The default's own: training questions, its top 64 and own tokens.",
        "Whole calls of `DeviceSearcher.search`, tables made and copied, canonical scores and order included; medians "
        f"of {sizes.repeats} after one that does not count.",
        f"Checked: {sizes.checked:,} passages searched here and by the processor give the same passages and bits, and "
        "so do searches through the engine after deleting, adding and compacting.",
        "The paper (appendix): 30 ms for a batch of 32 and 10 GB, on an A100 with torch.sparse.",
    ]


def _rates(texts: list[str]) -> NDArray[np.float64]:
    """-ln(1 - share of the passages with it) of each dimension: the rate at which it must be drawn."""
    with SiDR.from_texts(["x"]) as sidr:
        counts = sidr.encoder.tokenizer.counts(texts)
    share = np.bincount(counts.dims, minlength=counts.dim) / len(texts)
    share *= _DISTINCT / share.sum()
    rates: NDArray[np.float64] = -np.log1p(-np.minimum(share, 0.999))
    return rates


def _draw(rates: Tensor, n: int, *, scale: float = 1.0) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Forward lists of n passages: indptr and dims, ascending and distinct in each."""
    draws = max(1, round(float(rates.sum()) * scale))
    edges = rates.cumsum(0) / rates.sum()
    lens, dims = [], []
    for first in range(0, n, _ROWS):
        rows = min(_ROWS, n - first)
        found = torch.searchsorted(edges, torch.rand((rows, draws), device=rates.device, dtype=edges.dtype))
        found = found.clamp(max=len(rates) - 1).sort(dim=1).values
        new = torch.ones_like(found, dtype=torch.bool)
        new[:, 1:] = found[:, 1:] != found[:, :-1]
        lens.append(new.sum(dim=1).cpu().numpy())
        dims.append(found[new].to(torch.int32).cpu().numpy().astype(np.uint16))
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lens), out=indptr[1:])
    return indptr, np.concatenate(dims)


def _index(rates: Tensor, n: int, device: torch.device) -> BotIndex:
    """Segments with forward lists alone: a device needs no postings."""
    views = []
    for i, first in enumerate(range(0, n, _ROWS)):
        rows = min(_ROWS, n - first)
        indptr, dims = _draw(rates, rows)
        seqs = np.arange(first + 1, first + rows + 1, dtype=np.uint64)
        lengths = np.diff(indptr).astype(np.uint32)
        postings = _no_postings(rows, len(rates))
        segment = Segment(len(rates), seqs, lengths, (1,), indptr, dims, postings, Columns(rows))
        views.append(SegmentView(f"{i:032x}", segment))
    return BotIndex(len(rates), tuple(views), np.zeros(len(rates), np.int64), n, n * _DISTINCT)


def _no_postings(n_rows: int, dim: int) -> Postings:
    none = np.empty(0, dtype=np.int32)
    starts = np.zeros((blocks_of(n_rows), 1), dtype=np.uint32)
    bitmaps = np.zeros((chunks_of(n_rows), 0, CHUNK_WORDS), dtype=np.uint32)
    first = np.zeros(len(starts), dtype=np.int64)
    return Postings(n_rows, dim, none, starts, first, none.astype(np.uint16), none, first[:0], bitmaps)


def _flat_queries(rates: Tensor, n: int, active: int) -> SparseVectors:
    """Distinct dimensions by their frequency, weights as elu1p gives them: a few large, a long flat tail."""
    rng = np.random.default_rng(3)
    share = rates.cpu().numpy() + 1e-9
    rows = []
    for _ in range(n):
        keys = np.log(rng.random(len(share))) / share  # the largest are a weighted sample without replacement
        dims = np.sort(np.argpartition(-keys, active)[:active]).astype(np.int32)
        weights = rng.permutation(np.r_[1 + rng.exponential(1.5, 48), rng.uniform(0.7, 1.0, active - 48)])
        rows.append((dims, weights.astype(np.float32)))
    return SparseVectors.from_rows(rows, len(share))


def _default_queries(n: int) -> SparseVectors:
    """The bundled model's vectors of training questions, repeated up to n."""
    asked = few_questions(16) if n < 100 else questions(128)
    with SiDR.from_texts(["x"]) as sidr:
        vectors = sidr.encode_queries(asked)
    return SparseVectors.from_rows([vectors.row(i % len(vectors)) for i in range(n)], vectors.dim)


def _first(vectors: SparseVectors, n: int) -> SparseVectors:
    return SparseVectors.from_rows([vectors.row(i) for i in range(n)], vectors.dim)


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _copy_ms(n_bytes: int, device: torch.device, timer: Timer) -> float:
    """The time to read and write so many bytes in the device's memory once."""
    source = torch.empty(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return timer.ms(lambda: target.copy_(source))


def _check(rates: Tensor, n: int, device: torch.device, vectors: SparseVectors) -> bool:
    """Whether the device and the processor find the same passages with the same bits."""
    indptr, dims = _draw(rates, n)
    ones = np.ones(len(dims), dtype=np.uint32)
    counts = TokenCounts(indptr, dims, ones, np.diff(indptr).astype(np.uint32), len(rates))
    segment = build_segment(counts, np.arange(1, n + 1, dtype=np.uint64), (1,))
    index = BotIndex.of(len(rates), [SegmentView("0" * 32, segment)])
    searcher = DeviceSearcher(str(device))
    for batch in (_first(vectors, 8), _flat_queries(rates, 8, min(768, len(rates) // 2))):
        for k in (10, 300):
            ours, right = searcher.search(index, batch, BINARY, k), search_index(index, batch, BINARY, k)
            same = [
                np.array_equal(a[0], b[0]) and a[1].tobytes() == b[1].tobytes()
                for a, b in zip(ours, right, strict=True)
            ]
            if not all(same):
                return False
    return True


def _engine(device: torch.device, timer: Timer, *, small: bool) -> tuple[list[list[Cell]], bool]:
    """Searches of real passages through the engine, there and on the processor; and whether the same is found.

    Vectors are compared as given, since an encoder's last bits are its device's.
    """
    texts, asked = (few_passages(150), few_questions(8)) if small else (cut_passages(100_000), questions(128))
    where: dict[str, Any] = {"device": "cpu", "kernel": "torch"} if device.type == "cpu" else {"device": device.type}
    ids = [str(i) for i in range(len(texts))]
    with SiDR.from_texts(texts, ids=ids, **where) as there, SiDR.from_texts(texts, ids=ids, device="cpu") as here:
        rows: list[list[Cell]] = []
        for batch in (b for b in (1, 32, 128) if b == 1 or not small):
            for m in (0, 4 if small else 20):
                ms = [timer.ms(partial(sidr.search, asked[:batch], k=10, rerank=m)) for sidr in (there, here)]
                rows.append([len(texts), batch, m, *ms])
        vectors = here.encode_queries(asked)
        agrees = True
        fresh = [f"fresh {i}" for i in ids[::5]]
        for change in (lambda sidr: sidr.delete(ids[::3]), lambda sidr: sidr.add(texts[::5], ids=fresh), SiDR.compact):
            for sidr in (there, here):
                change(sidr)
            ours, right = (sidr.search_vectors(vectors, k=50) for sidr in (there, here))
            agrees = agrees and ours.ids == right.ids and ours.scores.tobytes() == right.scores.tobytes()
        assert there.info()["device_bytes"] > 0, "the engine searched on the processor"
    return rows, agrees


def _sparse_ms(rates: Tensor, n: int, heavy: SparseVectors, device: torch.device, timer: Timer) -> float:
    """The authors' way: passages as a CSR matrix of float32 with int64 indices, times the queries, then top-k."""
    indptr, dims = _draw(rates, n)
    matrix = torch.sparse_csr_tensor(
        torch.from_numpy(indptr).to(device),
        torch.from_numpy(dims.astype(np.int64)).to(device),
        torch.ones(len(dims), device=device),
        size=(n, len(rates)),
    )
    dense = torch.from_numpy(_first(heavy, 32).toarray()).to(device).T.contiguous()
    return timer.ms(lambda: (matrix @ dense).topk(10, dim=0))


def _density(rates: Tensor, n: int, device: torch.device, timer: Timer, *, small: bool) -> Iterator[list[Cell]]:
    """The appendix's simulation: more dimensions in a passage, more queries in a batch."""
    for active in (256,) if small else (256, 512, 1024):
        # Uniform dimensions, as in a simulation: real text has no passages of so many.
        uniform = torch.full_like(rates, active / len(rates))
        index = _index(uniform, n, device)
        vectors = _flat_queries(uniform, 8 if small else 512, 768)
        searcher = DeviceSearcher(str(device))
        for batch in (8,) if small else (32, 128, 512):
            ms = timer.ms(partial(searcher.search, index, _first(vectors, batch), BINARY, 10))
            yield [active, batch, ms, searcher.nbytes / n, active * 12 + 8]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "the processor, a trial"


if __name__ == "__main__":
    main()
