"""What is for a target whose own scheduler decides: refused elsewhere, without a connector, and where a tree can't."""

from pathlib import Path

import pytest

from stress.config import ConfigError, load_config
from stress.engine.vllm.tree_source import refuse_unfit_run
from stress.target.name import parse_target

TARGET = "vllm-scheduler==0.33.0"


def refusal(*overrides):
    with pytest.raises(ConfigError) as refused:
        load_config("vllm-scheduler", list(overrides))
    return str(refused.value)


def test_the_connector_is_driven_with_its_injections():
    config = load_config("vllm-scheduler", ["linker.workers=4", "injections.lost_loads=0.01"])
    assert config.linker.enabled and config.injections.lost_loads == 0.01
    assert config.to_dict()["injections"]["late_stores"] == 0.2


def test_injections_need_a_connector():
    said = refusal("linker.enabled=false")
    assert "injections.late_loads: 0.2 is of what a connector is told, and arms.v0330 has none" in said
    off = [f"injections.{name}=0" for name in ("late_loads", "late_stores", "twice_stores", "failed_loads")]
    assert "linker.workers: 2 is of what" in refusal("linker.enabled=false", *off, "linker.workers=2")
    load_config("vllm-scheduler", ["linker.enabled=false", *off])


def test_injections_need_a_scheduler_of_the_target_s_own():
    said = refusal("arms.v0330.target=vllm==0.33.0")
    assert "for a target whose own scheduler decides, and arms.v0330 is vllm==0.33.0" in said


@pytest.fixture
def tree(tmp_path):
    """A function of what the outputs of a tree say: its folder."""

    def make(outputs: str) -> Path:
        for name, text in (("outputs.py", outputs), ("simple_kv_offload/manager.py", "")):
            file = tmp_path / "vllm" / "v1" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return make


def test_a_failed_load_needs_a_road_that_the_tree_has(tree):
    config = load_config("vllm-scheduler")
    refuse_unfit_run(tree("failed_recving: set[str]"), parse_target(TARGET), config)
    older = tree("invalid_block_ids: set[int]")
    with pytest.raises(
        ConfigError, match=r"^injections.failed_loads: 0.1 is told by blocks in vllm-scheduler==0.33"
    ):
        refuse_unfit_run(older, parse_target(TARGET), config)
    for more in ('pool.groups=["full"]', "injections.failed_loads=0"):
        refuse_unfit_run(older, parse_target(TARGET), load_config("vllm-scheduler", [more]))


def test_a_tree_without_an_offload_is_refused(tree):
    root = tree("")
    (root / "vllm/v1/simple_kv_offload/manager.py").unlink()
    with pytest.raises(ConfigError, match=r"^linker.enabled: vllm-scheduler==0.33.0 has no CPU offload"):
        refuse_unfit_run(root, parse_target(TARGET), load_config("vllm-scheduler"))
    refuse_unfit_run(root, parse_target(TARGET), load_config("vllm-priority"))
