"""The rules, one a file, in the order of their numbers. A new rule is a class here and its file."""

from __future__ import annotations

from stress.check.rules.i01_padding import Padding
from stress.check.rules.i02_exclusive import Exclusive
from stress.check.rules.i03_returned import Returned
from stress.check.rules.i04_mapping import Mapping
from stress.check.rules.rule import Rule

RULES: tuple[type[Rule], ...] = (Padding, Exclusive, Returned, Mapping)
