"""The signals that end a run: Ctrl-C, a stopped job, a closed terminal. All end it alike, and once.

The first one raises KeyboardInterrupt; where a rank is at work in this process it does so at the rank's next
operation, after LAST_WORDS_S or at the second signal. From then on all are ignored, so that the ranks are ended and
what was gathered is written down however often the user, or a job runtime, asks again; SIGKILL remains. One that was
ignored when the program started (`nohup`, a shell's background job) stays so.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from stress.ending import ENDING, LAST_WORDS_S

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Handles the signals inside; the handlers from before come back unless one has arrived."""
    before = {each: signal.getsignal(each) for each in ENDING_SIGNALS}
    handled = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    arrived = []

    def ignore() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each in handled:
            signal.signal(each, signal.SIG_IGN)

    def interrupt(signum: int, _frame: FrameType | None) -> None:
        arrived.append(signum)
        if ENDING.heard and not ENDING.asked:
            ENDING.asked = True
            signal.setitimer(signal.ITIMER_REAL, LAST_WORDS_S)
            return
        ignore()
        raise KeyboardInterrupt

    ENDING.asked, ENDING.done = False, ignore
    on_alarm = signal.signal(signal.SIGALRM, interrupt)
    for each in handled:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, on_alarm)
        ENDING.reset()
        for each in () if arrived else handled:
            signal.signal(each, before[each])
