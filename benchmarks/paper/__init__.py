"""The paper's experiments, one module for each of its tables; `python -m benchmarks.paper` runs them."""
