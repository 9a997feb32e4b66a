"""What scripts/benchmark.py is made of. Nothing here imports lit_rl or a peer before it runs in a process of its own."""
