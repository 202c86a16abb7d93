"""Query vectors and segments to the best k rows: kernels, merging, filters."""

from sidr_rag.search.filters import Filter, filter_mask, parse_filter
from sidr_rag.search.kernels import kernel_for, warm_up
from sidr_rag.search.reference import NumpyKernel
from sidr_rag.search.topk import merge_hits

__all__ = ["Filter", "NumpyKernel", "filter_mask", "kernel_for", "merge_hits", "parse_filter", "warm_up"]
