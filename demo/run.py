"""The whole main job on real documents: index, ask, add one live, find it, delete it, and no longer find it."""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_STARTED = time.perf_counter()

from langchain_core.documents import Document  # noqa: E402  (the clock must start before the imports)
from langchain_sidr import SiDRRetriever  # noqa: E402

HERE = Path(__file__).resolve().parent
FOLDERS = [HERE / "documents", HERE.parent / "README.md", HERE.parent / "docs"]
CANDIDATES = 20


@dataclass(frozen=True)
class Question:
    """A question, and what its answer can be told by: the file it is in and some of its words."""

    text: str
    file: str
    words: str


QUESTIONS = (
    Question("How old must a senator be?", "constitution.md", "Age of thirty Years"),
    Question("Can the police search my house without a warrant?", "constitution.md", "unreasonable searches"),
    Question("Which amendment gave women the vote?", "constitution.md", "on account of sex"),
    Question("Which rights cannot be taken away from people?", "declaration.txt", "pursuit of Happiness"),
    Question("How many years ago was the nation founded?", "gettysburg_address.txt", "Four score and seven"),
    Question("How did a thirsty bird get at the water?", "aesop.csv", "dropped them one by one"),
    Question("Who lost a race because he took a nap?", "aesop.csv", "fell fast asleep"),
    Question("What did the rabbit take out of his pocket?", "alice.html", "took a watch out"),
    Question("Which file holds the passages of a store?", "architecture.md", "passages.db"),
    Question("How do I filter passages by their page number?", "filters.md", "gt"),
)
FRESH = Document(
    id="minutes-2031",
    page_content="The Lunar Gardening Society met on Tuesday and elected Ottoline Quist as its treasurer.",
    metadata={"source": "minutes.txt"},
)
FRESH_QUESTION = "Who is the treasurer of the gardening club?"


def main() -> int:
    """Run the demo; returns the number of expectations that failed."""
    failures: list[str] = []
    start = time.perf_counter()
    retriever = SiDRRetriever.from_folder(FOLDERS, k=3)
    indexing = time.perf_counter() - start
    report = retriever.file_report
    assert report is not None
    print(f"Indexed {report.n_passages} passages from {len(report.loaded)} files in {indexing:.2f} s.")
    for path, reason in [*report.skipped, *report.failed]:
        failures.append(f"{Path(path).name} was not read: {reason}")

    first_answer = 0.0
    times: dict[str, list[float]] = {"beta": [], "late": []}
    for mode, rerank in (("beta", 0), ("late", CANDIDATES)):
        print(f"\n{_MODES[mode]}\n")
        for question in QUESTIONS:
            start = time.perf_counter()
            found = retriever.invoke(question.text, rerank=rerank)
            times[mode].append(time.perf_counter() - start)
            first_answer = first_answer or _seconds_since_process_start()
            rank = next((i for i, d in enumerate(found, start=1) if _answers(d, question)), None)
            _show(question.text, found, rank)
            if rank is None:
                failures.append(f"{mode}: {question.text!r} is not answered by the first 3 passages")

    print("\nA fresh document\n")
    before = [d.id for d in retriever.invoke(FRESH_QUESTION)]
    start = time.perf_counter()
    retriever.add_documents([FRESH])
    found = retriever.invoke(FRESH_QUESTION)
    adding = time.perf_counter() - start
    rank = next((i for i, d in enumerate(found, start=1) if d.id == FRESH.id), None)
    _show(FRESH_QUESTION, found, rank)
    if FRESH.id in before or rank != 1:
        failures.append("the fresh document is not the first answer once it is added")
    retriever.delete([str(FRESH.id)])
    after = [d.id for d in retriever.invoke(FRESH_QUESTION, k=1000)]
    print("  deleted; " + ("it is STILL found" if FRESH.id in after else "it is no longer found"))
    if FRESH.id in after:
        failures.append("the fresh document is found after it was deleted")

    print("\nFigures\n")
    print(f"  {first_answer:7.2f} s from process start to the first answer")
    print(f"  {report.n_passages / indexing:7.0f} passages/s indexed, reading and splitting the files included")
    print(f"  {_typical(times['beta']):7.1f} ms per query, beta search (median)")
    print(
        f"  {_typical(times['late']):7.1f} ms per query, {CANDIDATES} candidates re-ranked, most embedded anew (median)"
    )
    print(f"  {adding * 1000:7.1f} ms to add a document and find it")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    print("\nAll expectations met." if not failures else f"\n{len(failures)} expectations failed.")
    return len(failures)


_MODES = {
    "beta": "Beta search: the question's learned vector against bags of tokens",
    "late": f"Late: the best {CANDIDATES} of these, re-ranked with the passages' learned vectors",
}


def _answers(document: Document, question: Question) -> bool:
    text = " ".join(document.page_content.split())
    return Path(document.metadata.get("source", "")).name == question.file and question.words in text


def _show(question: str, found: list[Document], rank: int | None) -> None:
    print(f"  {question}")
    if rank is None:
        print("    not answered")
        return
    document = found[rank - 1]
    text = " ".join(document.page_content.split())
    source = Path(document.metadata["source"]).name
    print(f"    {rank}. {source}: {text if len(text) <= 150 else text[:150].rstrip() + ' ...'}")


def _typical(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


def _seconds_since_process_start() -> float:
    """Since the system started this process, where Linux tells; else since this file was first run."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.perf_counter() - _STARTED


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
