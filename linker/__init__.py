"""The external KV store linked straight to the pools. May import allocator.contract, nothing of stress."""
