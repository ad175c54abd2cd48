"""Stand-ins for the coordinator and the launcher, so that the command line is tested without ranks."""

from stress.arm_watch import ArmProgress
from stress.coordinator import ArmsBroken, Interrupted
from stress.launch.contract import LaunchError
from stress.result import Finding, RankResult

FINDING = Finding(
    rule="I1",
    pool="swa",
    operation=40,
    noticed=40,
    virtual_us=900_000,
    page=0,
    message="page 0 returned 4 times",
    history=["17 lent full page 391 to request 4 (linker load) [of 3]"],
)


class FakeLauncher:
    name = "fake"
    closed = 0

    def close(self):
        self.closed += 1


class Ranks:
    """Stands for the coordinator: gives each arm's ranks what `arms` says of it, or says of it by seed."""

    def __init__(self, arms):
        self.arms = arms
        self.runs = []
        self.launcher = FakeLauncher()

    def __call__(self, config, arms, launcher, run_dir, progress, *, trees, on_interrupt):
        self.runs.append((config, arms, run_dir))
        results = {}
        for arm in arms:
            told = self.arms[arm]
            told = told[config.seed] if isinstance(told, dict) else told
            if isinstance(told, KeyboardInterrupt):
                raise Interrupted(results)
            if isinstance(told, Exception):
                raise ArmsBroken(results, [arm] if isinstance(told, LaunchError) else [], told) from told
            results[arm] = [self._rank(config, arm, rank, told) for rank in range(config.layout.ranks)]
            progress(
                ArmProgress(
                    arm=arm,
                    ranks=config.layout.ranks,
                    ranks_ended=0,
                    lost=(),
                    requests_done=1,
                    virtual_s_min=0.0,
                    virtual_s_max=1.0,
                    findings=0,
                    asserts=0,
                )
            )
        return results

    def _rank(self, config, arm, rank, told):
        failing = {"findings": {"I1": 4}, "first_finding": FINDING} if told == "fail" else {}
        return RankResult(
            arm=arm,
            rank=rank,
            dp_rank=config.layout.dp_rank(rank),
            attn_tp_rank=config.layout.attn_tp_rank(rank),
            device="cpu",
            pid=1,
            status="lost" if told == "lost" else "finished",
            requests_started=5,
            requests_finished=5,
            digest=f"{rank}" if told != "random" else f"{rank} {len(self.runs)}",
            marks=dict.fromkeys(config.check.require, 1),
            rules_watched=["I1"],
            **failing,
        )
