"""A small matrix for tests of a nightly on faked ranks; the fixture `night` makes it."""

MATRIX = """
[nightly]
seeds = [1, 2]
[[nightly.run]]
config = "smoke"
set = { "workload.requests" = 20, "linker.store" = ["shared", "memory"] }
[nightly.canary]
config = "smoke"
arm = "unpatched"
set = { "workload.requests" = 20 }
"""


def failing(seed, store="memory", told="fail"):
    return {f"smoke__store_{store}__seed{seed}": told}
