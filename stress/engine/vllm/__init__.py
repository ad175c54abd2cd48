"""A real vLLM tree's KV-cache management: its own block pool, managers and connectors, without a server."""
