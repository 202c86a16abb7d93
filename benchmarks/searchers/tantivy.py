"""tantivy: once with the tokens of the vectors as terms of fixed scores, once as people use it, with words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import N_QUERIES, K
from benchmarks.searchers.base import WORDS, Searcher, folder_bytes, peer

_HEAP_BYTES = 256 << 20


class TantivyVectors(Searcher):
    """Every token a term; a query is an "or" of terms, each with its weight as a constant score."""

    label = "tantivy, or of constant scores"
    packages = ("tantivy",)
    index = "tantivy"
    tokenizer = "whitespace"
    records = "basic"
    stores_texts = False

    def load(self) -> None:
        """The module."""
        self._tantivy = peer("tantivy", "tantivy")

    def build(self) -> None:
        """One writer thread; the segments are merged as tantivy merges them."""
        self.load()
        self.folder.mkdir(parents=True, exist_ok=True)
        index = self._tantivy.Index(self._schema(), path=str(self.folder))
        writer = index.writer(_HEAP_BYTES, 1)
        for i, text in enumerate(self._contents()):
            document = self._tantivy.Document()
            document.add_unsigned("row", i)
            document.add_text("text", text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()

    def open(self) -> None:
        """A searcher over what was committed."""
        self.load()
        self._index = self._tantivy.Index.open(str(self.folder))
        self._searcher = self._index.searcher()

    def index_bytes(self) -> int:
        """All files."""
        return folder_bytes(self.folder)

    def take(self, name: str) -> None:
        """Queries are made before the clock starts."""
        make, should = self._tantivy.Query, self._tantivy.Occur.Should
        self._queries = []
        for dims, weights in self.corpus.vectors(name):
            terms = [
                (should, make.const_score_query(make.term_query(self._index.schema, "text", str(d), "basic"), w))
                for d, w in zip(dims.tolist(), weights.tolist(), strict=True)
            ]
            self._queries.append(make.boolean_query(terms))

    def search(self, i: int) -> Any:
        """One query, without counting all matches."""
        return self._searcher.search(self._queries[i], K, count=False)

    def rows(self, found: Any) -> Sequence[int]:
        """From a column."""
        rows: list[int] = self._searcher.fast_field_values("row", [address for _, address in found.hits])
        return rows

    def _schema(self) -> Any:
        builder = self._tantivy.SchemaBuilder()
        builder.add_unsigned_field("row", fast=True)
        builder.add_text_field(
            "text", stored=self.stores_texts, tokenizer_name=self.tokenizer, index_option=self.records
        )
        return builder.build()

    def _contents(self) -> Iterable[str]:
        dims, indptr = np.asarray(self.corpus.dims), self.corpus.indptr
        for i in range(len(self.corpus)):
            yield " ".join(map(str, dims[indptr[i] : indptr[i + 1]].tolist()))


class TantivyWords(TantivyVectors):
    """BM25 over the texts' words: default tokenizer, frequencies but no positions; texts stored, as ours are."""

    label = "tantivy, BM25 of the question's words"
    index = "tantivy_words"
    tokenizer = "default"
    records = "freq"
    stores_texts = True
    sets = (WORDS,)
    reads_texts = True
    has_recall = False

    def take(self, name: str) -> None:
        """An "or" of the question's words, made before the clock starts."""
        make, should, schema = self._tantivy.Query, self._tantivy.Occur.Should, self._index.schema
        self._queries = [
            make.boolean_query(
                [(should, make.term_query(schema, "text", word, "freq")) for word in re.findall(r"\w+", asked.lower())]
            )
            for asked in self.corpus.questions[:N_QUERIES]
        ]

    def _contents(self) -> Iterable[str]:
        return self.corpus.texts()
