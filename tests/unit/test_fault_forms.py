"""Faults of the catalogue on a real engine: what is told of them is there, and what has no meaning is refused."""

import json
from pathlib import Path

import pytest

import stress.matrix.plan
from stress.check.rules import RULE_IDS
from stress.cli import main
from stress.config import ConfigError, load_config
from stress.engine.lmcache.faults import CLIENT_FAULTS
from stress.engine.vllm.faults import CALLS_FAULTS, ENGINE_FAULTS, OFFLOAD_FAULTS
from stress.fault_catalogue import FAULTS
from stress.fault_forms import facts_of, faults_of
from stress.matrix.base import base_config
from stress.matrix.subject import Subject

OWN = ["F26", "F27", "F28"]
OF_VLLM = ["F05", "F11", "F13", "F14", "F15", "F16", "F17", "F22", "F23", *OWN]
OF_REFERENCE = [f"F{number:02}" for number in range(1, 25)]


def test_each_engine_has_its_faults_in_the_order_of_their_numbers():
    assert faults_of("vllm") == OF_VLLM
    assert faults_of("reference") == OF_REFERENCE
    assert (faults_of("lmcache"), faults_of("sglang")) == (["F25"], [])
    assert facts_of("F06", "vllm") is None and facts_of("F26", "reference") is None
    assert facts_of("F05", "reference") is FAULTS["F05"] is not facts_of("F05", "vllm")


def test_each_fault_of_vllm_has_one_override_in_a_file_of_its_own():
    kinds = [CALLS_FAULTS, ENGINE_FAULTS, OFFLOAD_FAULTS]
    assert sorted(fault for kind in kinds for fault in kind) == OF_VLLM
    for kind in [*kinds, CLIENT_FAULTS]:
        for fault, override in kind.items():
            assert Path(override.__module__.replace(".", "/")).name.startswith(f"{fault.lower()}_")


@pytest.mark.parametrize("fault", OF_VLLM)
@pytest.mark.parametrize("pool_state", ["idle", "loaded"])
def test_a_form_has_a_base_rules_and_needs_that_an_option_sets(fault, pool_state):
    facts = facts_of(fault, "vllm")
    assert set(facts.rules) <= set(RULE_IDS) and facts.sources and facts.project == "vllm"
    assert set(facts.late) <= set(facts.rules)
    assert facts.needs == FAULTS[fault].needs  # --fault sets them whatever the target
    subject = Subject("vllm", "vllm==0.20.2", "/tree")
    config = base_config(facts.config, pool_state, fault, facts.needs, subject)
    assert list(config.arms.named) == ["vllm"]
    assert (config.arms.record("vllm").target, config.arms.record("vllm").fault) == ("vllm==0.20.2", fault)
    assert (config.pool.full_pages, config.workload.ballast) == {"idle": (110, 0), "loaded": (1100, 0.9)}[
        pool_state
    ]


@pytest.mark.parametrize(
    ("target", "fault", "told"),
    [
        ("vllm==0.33.0", "F06", "F06 is a fault of the reference and the target is vllm==0.33.0; leave it out, or name "
         "an edited tree (vllm==V+EDIT)"),
        ("reference", "F26", "F26 is a fault of vllm and the target is reference; name one such as vllm==0.33.0 as "
         "the target"),
        ("vllm-scheduler==0.33.0", "F26", "F26 acts where our own loop decides, and vllm-scheduler==0.33.0 is driven "
         "by its scheduler; name one such as vllm==0.33.0 as the target"),
        ("vllm-scheduler==0.33.0", "F05", "F05 acts where our own loop decides, and vllm-scheduler==0.33.0 is driven "
         "by its scheduler; name one such as vllm==0.33.0 as the target"),
        ("sglang==0.5.23", "F27", "F27 is a fault of vllm and the target is sglang==0.5.23; name one such as "
         "vllm==0.33.0 as the target"),
        ("vllm==0.33.0", "F25", "F25 is a fault of a client of lmcache and the target is vllm==0.33.0; name one such "
         "as lmcache==0.5.6 as the target"),
    ],
)  # fmt: skip
def test_a_fault_that_means_nothing_there_is_refused_in_one_line(target, fault, told):
    with pytest.raises(ConfigError) as refused:
        load_config("smoke", [f"arms.patched.target={target}", f"arms.patched.fault={fault}"])
    assert str(refused.value) == f"--set arms.patched.fault={fault}: arms.patched.fault: {told}"


@pytest.mark.parametrize("fault", ["F05", "F26"])
def test_a_fault_that_vllm_can_have_is_taken(fault):
    config = load_config("smoke", ["arms.patched.target=vllm==0.33.0", f"arms.patched.fault=dry:{fault}@1"])
    assert config.arms.record("patched").fault == f"dry:{fault}@1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--target", "vllm==0.33.0", "--fault", "F06"], "--fault F06: has no meaning on vllm==0.33.0; its faults are "
         "F05, F11, F13, F14, F15, F16, F17, F22, F23, F26, F27, F28"),
        (["--target", "vllm==0.33.0", "--fault", "F99"], "--fault F99: unknown fault; the faults are F05, F11, F13, "
         "F14, F15, F16, F17, F22, F23, F26, F27, F28"),
        (["--fault", "F26"], "--fault F26: is a fault of vllm, and the matrix runs the reference; add --target "
         "vllm==0.33.0"),
        (["--fault", "F25"], "--fault F25: is a fault of a client of lmcache, and the matrix runs the reference; add "
         "--target lmcache==0.5.6"),
        (["--target", "sglang==0.5.23"], "--target sglang==0.5.23: no named fault has a form on sglang; leave it out "
         "for those of the reference, or name one such as lmcache==0.5.6 or vllm==0.33.0"),
        (["--target", "vllm-scheduler==0.33.0"], "--target vllm-scheduler==0.33.0: its scheduler decides, and named "
         "faults act where our own loop does; name one such as vllm==0.33.0"),
        (["--target", "vllm==no"], "target 'vllm==no': 'no' is no version; write vllm==0.33.0, for instance"),
    ],
)  # fmt: skip
def test_what_the_matrix_can_not_run_is_one_line(given, told, capsys):
    assert main(["matrix", *given]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"kvstress: {told}\n")


def test_the_matrix_of_a_target_is_told_its_tree(monkeypatch, capsys):
    told = []

    def made(faults, on_row, each_rule_off, on_trial, subject):
        told.append((faults, subject))
        return {"schema": 1, "ended_early": None, "rows": []}

    monkeypatch.setattr("stress.target.store.resolve", lambda target, tell: Path("/trees/one"))
    monkeypatch.setattr(stress.matrix.plan, "make_matrix", made)
    assert main(["matrix", "--target", "vllm==0.28.0", "--fault", "F28", "--fault", "F05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert told == [(["F05", "F28"], Subject("vllm", "vllm==0.28.0", "/trees/one"))]
