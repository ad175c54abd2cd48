"""A rank's process under the local launcher: what runs on the far side of its pipe.

The first rank of an arm opens the rendezvous store and tells its port, the coordinator tells it to its peers; each
rank then sends one outcome. The rank's end of the pipe is read by a thread of its own: when the coordinator closes
its end, or is killed, the read ends and the process with it, whatever the rank is doing. So a rank that has
ended stays, and keeps its group open for slower peers, until it is released. The same thread hears of ranks that are
lost, so that nobody waits for them to join. It leads a process group of its own: a terminal's signals are the
coordinator's. A signal that ends this rank alone is taken by another thread. However it ends, one that is at work has
LAST_WORDS_S to come to the end of an operation; else its target is ended where it is, and the checks have as long again
to look at what was seen before that operation.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import traceback
from collections.abc import Collection
from multiprocessing.connection import Connection
from types import FrameType

import msgspec

from stress.ending import ENDING, LAST_WORDS_S, AskedToEnd
from stress.launch.contract import LOOPBACK, LaunchError, RankOutcome, backend_of
from stress.launch.device import torch_device, use_device
from stress.launch.entry import RankRun
from stress.launch.exchange import AloneExchange, GroupExchange, join_group, open_store
from stress.launch.local_pipe import Ended, Gone, Message, Refused, StorePort, decode, encode
from stress.launch.rank_process import settle_process
from stress.result import RankSpec, utf8_text

_ENDS_ALONE = (signal.SIGTERM, signal.SIGHUP)


class News:
    """What the coordinator has told this rank, and whether it is at work."""

    def __init__(self) -> None:
        self.port: queue.SimpleQueue[int] = queue.SimpleQueue()  # of the store; once
        self.gone: set[int] = set()
        self.idle = threading.Event()  # this rank is not at work: it has nothing to say that it has not said
        self.idle.set()

    def end_work(self) -> None:
        """Returns when this rank has said what it had to say, or will not. Not from the thread that works."""
        ENDING.asked = True
        if not self.idle.wait(LAST_WORDS_S):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            self.idle.wait(LAST_WORDS_S)

    def end_amid(self, _signum: int, _frame: FrameType | None) -> None:
        """Raises AskedToEnd amid an operation."""
        if ENDING.asked and ENDING.amid:
            raise AskedToEnd

    def lost(self, peers: Collection[int]) -> bool:
        """Whether one of them is lost: indices in the arm."""
        return not self.gone.isdisjoint(peers)


def rank_process(pipe: Connection, spec_json: bytes, entry: str, timeout_s: float) -> None:
    """Runs one rank to its outcome and stays until the coordinator lets go of the pipe."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    news = News()
    signal.signal(signal.SIGALRM, news.end_amid)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS_ALONE)  # in the threads that are started here too
    threading.Thread(target=_hear_signals, args=(news,), daemon=True).start()
    settle_process()
    lifeline = threading.Thread(target=_listen, args=(pipe, news), daemon=True)
    lifeline.start()
    spec = msgspec.json.decode(spec_json, type=RankSpec)
    try:
        spec = msgspec.structs.replace(spec, device=torch_device(spec.device, spec.rank))
        outcome, group = _run(spec, entry, pipe, news, timeout_s)
    except LaunchError as error:
        _tell(pipe, Refused(str(error)))
        lifeline.join()  # until the coordinator lets go, which ends this process
        return
    except AskedToEnd:
        threading.Event().wait()  # for ever: the thread that asked ends this process
    _tell(pipe, Ended(outcome))
    if outcome.result is None:
        os._exit(1)  # closes its connections, which is how the peers learn of it
    lifeline.join()
    del group  # held until here for the peers that still exchange


def _tell(pipe: Connection, message: Message) -> None:
    """To the coordinator. One that has let go, as when a peer was refused first, is asking for nothing any more."""
    with contextlib.suppress(ConnectionError):  # the lifeline sees the same and ends this process
        pipe.send_bytes(encode(message))


def _listen(pipe: Connection, news: News) -> None:
    while True:
        try:
            message = decode(pipe.recv_bytes())
        except (EOFError, OSError):
            news.end_work()
            os._exit(0)
        if isinstance(message, Gone):
            news.gone.add(message.index)
        elif isinstance(message, StorePort):
            news.port.put(message.port)


def _hear_signals(news: News) -> None:
    """Waits for a signal that ends this process, and ends it by that once the rank has said what it had to say.

    One that whoever started the run ignores, as under nohup, is none of them. Children inherit these blocked.
    """
    ending = signal.sigwait([each for each in _ENDS_ALONE if signal.getsignal(each) is not signal.SIG_IGN])
    news.end_work()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [ending])
    os.kill(os.getpid(), ending)  # the coordinator sees by which
    os._exit(128 + ending)  # a target handles it


def _run(
    spec: RankSpec, entry: str, pipe: Connection, news: News, timeout_s: float
) -> tuple[RankOutcome, GroupExchange | AloneExchange | None]:
    try:
        use_device(spec.device)
        run = RankRun(spec, entry)
        run.open()
        if run.outcome is not None:
            return run.outcome, None
        group = _join(spec, pipe, news, timeout_s)
        news.idle.clear()
        try:
            return run.follow(group), group
        except AskedToEnd:
            run.close()
            raise
        finally:
            news.idle.set()
    except LaunchError:
        raise
    except Exception:
        return RankOutcome(rank=spec.rank, lost=utf8_text(traceback.format_exc().strip())), None


def _join(spec: RankSpec, pipe: Connection, news: News, timeout_s: float) -> GroupExchange | AloneExchange:
    """Meets the arm's other ranks: the first tells the coordinator where, the others are told."""
    if spec.index == 0:
        store, port = open_store(LOOPBACK, timeout_s)
        _tell(pipe, StorePort(port))
    else:
        try:
            store = news.port.get(timeout=timeout_s)
        except queue.Empty:
            store = 0
        if store == 0:
            return AloneExchange(spec.index, spec.ranks)
    return join_group(
        spec.index,
        spec.ranks,
        store,
        host=LOOPBACK,
        timeout_s=timeout_s,
        lost=news.lost,
        device=spec.device,
        backend=backend_of(spec),
    )
