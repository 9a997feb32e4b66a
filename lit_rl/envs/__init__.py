"""Environments: made by id, import path or factory, guarded, vectorised, seeded; their spaces as plain data."""
