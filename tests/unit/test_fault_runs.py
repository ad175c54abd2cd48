"""Runs with a named fault: they get what it needs, and one in which it never acted shows nothing."""

import json
from pathlib import Path

import pytest
from verdict_ranks import ASSERTED, rank

from stress.cli import main
from stress.config import load_config
from stress.verdict import make_verdict


def verdict(fault, *reached):
    """The document of `patched` with a fault, whose ranks came to the triggers `reached`."""
    config = load_config("smoke", [f"arms.patched.fault={fault}"])
    ranks = [
        rank("patched", number, faults_reached=dict.fromkeys(faults, 40))
        for number, faults in enumerate(reached)
    ]
    return make_verdict(config, {"patched": ranks}, arms=["patched"], launcher="local")


@pytest.mark.parametrize(
    ("fault", "idle"),
    [
        ("F06", "fault F06"),
        ("dry:F06", "fault F06"),
        ("F06@1", "fault F06"),
        ("F06+F07", "faults F06, F07"),
    ],
)
def test_a_fault_whose_trigger_was_never_reached_is_unknown(fault, idle):
    document = verdict(fault, (), ())
    assert document["verdict"] == "unknown"
    assert document["reasons"] == [
        f"Arm patched: the trigger of {idle} was never reached: this workload does not come to it; more "
        "requests or another seed may, and config paged does."
    ]


@pytest.mark.parametrize(("reached", "said"), [((), True), (("F06",), False)])
def test_an_arm_that_asserted_before_its_fault_acted_says_so(reached, said):
    config = load_config("smoke", ["arms.patched.fault=F06"])
    ranks = [
        rank("patched", n, "asserted", **ASSERTED, faults_reached=dict.fromkeys(reached, 7)) for n in (0, 1)
    ]
    document = make_verdict(config, {"patched": ranks}, arms=["patched"], launcher="local")
    assert document["verdict"] == "fail"
    assert any("the trigger of fault F06 was never reached" in why for why in document["reasons"]) == said


def test_who_has_the_config_of_a_fault_is_not_sent_to_it():
    config = load_config("tp", ["arms.reference.fault=F16"])
    ranks = [rank("reference", number) for number in range(4)]
    document = make_verdict(config, {"reference": ranks}, arms=["reference"], launcher="local")
    assert "more requests or another seed may." in document["reasons"][0]
    named = verdict("F02+F24+F16", (), ())["reasons"][0]
    assert named.endswith("may, and config ring or tp does.")


def test_one_rank_that_came_to_the_trigger_is_enough():
    assert verdict("dry:F06", (), ("F06",))["verdict"] == "pass"
    assert verdict("dry:F06+F07", ("F07",), ("F06",))["verdict"] == "pass"
    assert "of fault F07 was" in verdict("dry:F06+F07", (), ("F06",))["reasons"][0]


@pytest.mark.parametrize(
    ("given", "namespaces"),
    [
        (["--fault", "F06", "--fault", "F22"], 2),
        (["--fault", "dry:F22"], 2),
        (["--fault", "F22", "--set", "workload.namespaces=3"], 3),
        (["--fault", "F06"], 1),
    ],
)
def test_a_fault_gets_what_it_needs_unless_the_user_says_otherwise(ranks, capsys, given, namespaces):
    ranks(patched="pass")
    main(["run", "smoke", "--launcher", "inline", *given])
    manifest = json.loads(Path("runs/latest/manifest.json").read_text())
    assert manifest["config"]["workload"]["namespaces"] == namespaces
    told = "needs and gets workload.namespaces=2" in capsys.readouterr().err
    assert told == ("F22" in " ".join(given))


@pytest.mark.parametrize(
    ("faults", "told", "expect", "as_expected"),
    [
        (["F13"], "fail", "fail", True),
        (["F13"], "pass", "fail", False),
        (["dry:F13"], "pass", "pass", True),
        (["dry:F13", "dry:F06"], "pass", "pass", True),
    ],
)
def test_an_arm_with_a_fault_is_expected_to_fail_and_a_twin_to_pass(ranks, faults, told, expect, as_expected):
    ranks(patched=told)
    main(["run", "smoke", "--launcher", "inline", *(word for fault in faults for word in ("--fault", fault))])
    document = json.loads(Path("runs/latest/verdict.json").read_text())
    arm = document["arms"]["patched"]
    assert arm["expect"] == expect
    if expect == "fail":
        assert document["as_expected"] == as_expected
    else:
        assert arm["fault"] == f"dry:{'+'.join(fault.removeprefix('dry:') for fault in faults)}"


def test_a_comparison_of_an_arm_with_itself_has_the_fault_in_the_base_alone(ranks):
    ranks(patched="fail", patched__2="pass")
    both = ["--base", "patched", "--test", "patched"]
    assert main(["compare", "smoke", *both, "--fault", "F13", "--launcher", "inline"]) == 0
    document = json.loads(Path("runs/latest/verdict.json").read_text())
    told = {name: (arm["fault"], arm["expect"]) for name, arm in document["arms"].items()}
    assert told == {"patched": ("F13", "fail"), "patched~2": (None, "pass")}
    assert document["as_expected"]
