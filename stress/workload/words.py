"""Moved to stress.words."""

from stress.words import *  # noqa: F403
from stress.words import below, chance, hash_ids, mix, pick, split, words  # noqa: F401
