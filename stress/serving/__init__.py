"""Rank-local continuous batching in virtual time: planned requests in, operations out. Knows engine.contract only."""
