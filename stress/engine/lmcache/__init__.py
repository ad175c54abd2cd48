"""LMCache's paged allocator, imported from a tree of its own and driven as a pool alone."""
