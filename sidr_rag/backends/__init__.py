"""The same retriever past one process: on Qdrant, on Milvus, or over several local stores."""

from __future__ import annotations

from sidr_rag.backends.opening import is_backend, open_backend
from sidr_rag.backends.protocol import Candidate, IndexBackend, Record
from sidr_rag.backends.sharded import ShardedSiDR

__all__ = ["Candidate", "IndexBackend", "Record", "ShardedSiDR", "is_backend", "open_backend"]
