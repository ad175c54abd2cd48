"""The rules, one a file, in the order of their numbers. A new rule is a class here and its file."""

from __future__ import annotations

from stress.check.rules.i01_padding import Padding
from stress.check.rules.i02_exclusive import Exclusive
from stress.check.rules.i02_one_place import OnePlace
from stress.check.rules.i03_references import ReferencesGivenUp
from stress.check.rules.i03_returned import Returned
from stress.check.rules.i04_mapping import Mapping
from stress.check.rules.i05_one_source import OneSource
from stress.check.rules.i06_holder import Holder
from stress.check.rules.i06_private_pages import PrivatePages
from stress.check.rules.i07_flush import Flush
from stress.check.rules.i08_offsets import Offsets
from stress.check.rules.i09_row_memory import RowMemory
from stress.check.rules.i09_window import Window
from stress.check.rules.i10_live import Live
from stress.check.rules.i11_locks import Locks
from stress.check.rules.i12_counted import Counted
from stress.check.rules.i12_held import Held
from stress.check.rules.i13_conservation import Conservation
from stress.check.rules.i14_promise import Promise
from stress.check.rules.i15_transfers import Transfers
from stress.check.rules.i16_content import Content
from stress.check.rules.i17_agreed import Agreed
from stress.check.rules.i17_found import Found
from stress.check.rules.i17_given_back import GivenBack
from stress.check.rules.i17_published import Published
from stress.check.rules.i17_read import Read
from stress.check.rules.i17_written import Written
from stress.check.rules.i18_alike import Alike
from stress.check.rules.i19_collectives import Collectives
from stress.check.rules.i20_drained import Drained
from stress.check.rules.i20_ended import Ended
from stress.check.rules.i21_keys import Keys
from stress.check.rules.i22_progress import Progress
from stress.check.rules.rule import Rule

RULES: tuple[type[Rule], ...] = (
    Padding,
    Exclusive,
    OnePlace,
    Returned,
    ReferencesGivenUp,
    Mapping,
    OneSource,
    Holder,
    PrivatePages,
    Flush,
    Offsets,
    RowMemory,
    Window,
    Live,
    Locks,
    Held,
    Counted,
    Conservation,
    Promise,
    Transfers,
    Content,
    Written,
    Found,
    Read,
    Published,
    GivenBack,
    Agreed,
    Alike,
    Collectives,
    Drained,
    Ended,
    Keys,
    Progress,
)

RULE_IDS: tuple[str, ...] = tuple(dict.fromkeys(rule.id for rule in RULES))
