"""Exact beta search on a torch device: forward lists in its memory, candidates by a proven bound, canonical scores."""
