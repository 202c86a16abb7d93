"""Dimensions to something searchable: immutable segments, their merging, and the store that keeps them."""
