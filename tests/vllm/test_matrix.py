"""The matrix of named faults on a real release: each is found where it first acts, and its twin comes there clean."""

import json

import pytest

from stress.cli import main
from stress.fault_forms import facts_of, faults_of

pytestmark = pytest.mark.slow
VERSION = "0.20.2"
TARGET = f"vllm=={VERSION}"
KEYS = {
    *("fault", "config", "pool_state", "expected_rules", "fired", "first", "acted_at", "at_faulty_operation"),
    *("in_time", "upstream_assert", "clean_twin", "operations_to_detection", "holds"),
}
# Of these faults alone an assertion of the release tells. Of F27 too: a block that a table has twice comes back twice.
ASSERTED = {"F26", "F27"}


@pytest.fixture(scope="module")
def matrix(vllm_tree, tmp_path_factory):
    """The document of all faults, and the exit code."""
    vllm_tree(VERSION)
    path = tmp_path_factory.mktemp("matrix") / "out.json"
    with pytest.MonkeyPatch.context() as patch, open(path, "w") as out:
        patch.setattr("sys.stdout", out)
        code = main(["matrix", "--target", TARGET, "--json"])
    return json.loads(path.read_text()), code


def test_every_fault_is_found_at_its_operation_idle_and_loaded(matrix):
    document, code = matrix
    assert (document["schema"], document["ended_early"], code) == (1, None, 0)
    rows = document["rows"]
    assert [(row["fault"], row["pool_state"]) for row in rows] == [
        (fault, state) for fault in faults_of("vllm") for state in ("idle", "loaded")
    ]
    assert {row["fault"] for row in rows if not row["holds"]} == set()
    assert all(row.keys() == KEYS and row["at_faulty_operation"] for row in rows)
    assert {row["fault"] for row in rows if row["upstream_assert"]} == ASSERTED


def test_the_first_rule_is_one_that_is_promised(matrix):
    for row in matrix[0]["rows"]:
        facts = facts_of(row["fault"], "vllm")
        assert (row["config"], row["expected_rules"]) == (facts.config, list(facts.rules))
        assert set(row["in_time"]) & set(facts.rules)
        assert row["clean_twin"] == {"findings": 0, "failed": False, "trigger_reached": True}


@pytest.mark.parametrize(
    ("fault", "rule", "operation", "message"),
    [
        ("F26", "I3", 10, "returned by free_blocks (extend, window) is not on loan"),
        ("F28", "I17", 28, "whose request has lost it, and nothing will write it"),
    ],
)
def test_a_run_with_the_fault_fails_and_says_where(
    vllm_tree, tmp_path, capsys, fault, rule, operation, message
):
    vllm_tree(VERSION)
    few = [f"arms.vllm.target={TARGET}", "workload.requests=12"]
    overrides = [part for override in few for part in ("--set", override)]
    folder = str(tmp_path / "run")
    options = ["--fault", fault, "--launcher", "local", "--json", "--out", folder]
    assert main(["run", "vllm-small", *overrides, *options]) == 1
    (rank,) = json.loads(capsys.readouterr().out)["arms"]["vllm"]["ranks"]
    first = rank["first_finding"]
    assert (first["rule"], first["operation"]) == (rule, operation)
    assert message in first["message"]
