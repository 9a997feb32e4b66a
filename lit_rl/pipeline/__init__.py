"""A run: its settings, its folder, its ranks, going on with it, the two stages, and epochs by hand."""
