"""Pure memory managers of a KV cache: page pools, the FULL/SWA hybrid, release strategies, prefix cache.

Nothing here knows a scheduler, a request or an external store. Page ids are integers, page 0 of every pool is
padding, and a caller's mistake raises ValueError with the cure. Imports neither `linker` nor `stress`.
"""
