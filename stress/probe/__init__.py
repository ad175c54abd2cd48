"""Wraps an engine's allocators by method name and turns calls into events."""
