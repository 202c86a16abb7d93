"""Proofs that a store loses nothing and answers right whatever happens: `python -m benchmarks.reliability NAME`."""
