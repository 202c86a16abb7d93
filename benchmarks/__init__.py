"""What the library reaches on this machine, beside its peers: `python -m benchmarks`."""
