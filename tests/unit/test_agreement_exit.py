"""`python -m stress.agreement`: its exit code tells whether the seeds agree, without a look at the document."""

import json

import pytest

import stress.agreement
from stress.agreement import main

ARGUMENTS = ["root", "rust", "1-3"]


@pytest.fixture
def compared(monkeypatch):
    """Call with what each seed shows: whether it agrees, or an exception."""

    def call(*shown):
        def agreement(root, core, seeds, overrides):
            assert list(seeds) == [1, 2, 3]
            for each in shown:
                if isinstance(each, Exception):
                    raise each
            return {"agreed": sum(shown), "runs": [{"agrees": each} for each in shown]}

        monkeypatch.setattr(stress.agreement, "agreement", agreement)
        return main(ARGUMENTS)

    return call


@pytest.mark.parametrize(
    ("shown", "code"), [((True, True, True), 0), ((True, False, True), 1), ((False, False, False), 1)]
)
def test_one_seed_that_disagrees_is_exit_1_with_the_whole_document(compared, capfdbinary, shown, code):
    assert compared(*shown) == code
    document = json.loads(capfdbinary.readouterr().out)
    assert [run["agrees"] for run in document["runs"]] == list(shown)


def test_a_mistake_is_exit_2_and_a_defect_exit_3(compared, capfdbinary):
    assert compared(ValueError("rust can't be loaded here; ask for the other one")) == 2
    printed = capfdbinary.readouterr()
    assert json.loads(printed.out) == {"error": "rust can't be loaded here; ask for the other one"}
    assert printed.err == b"stress.agreement: rust can't be loaded here; ask for the other one\n"
    assert compared(RuntimeError("broken")) == 3
    printed = capfdbinary.readouterr()
    assert (printed.out, b"RuntimeError: broken" in printed.err) == (b"", True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["root", "rust"], "2 arguments; write python -m stress.agreement ROOT CORE SEEDS"),
        (["root", "rust", "3-1"], "seeds '3-1': there is none"),
        (["root", "rust", "1-x"], "seeds '1-x': are no numbers"),
        (["root", "rust", "-2"], "seeds '-2': are no numbers"),
        (["nowhere", "rust", "1"], "nowhere: holds no sglang/srt/mem_cache"),
        (["nowhere", "go", "1"], "tree_core 'go': unknown; choose python or rust"),
    ],
)
def test_arguments_that_compare_nothing_are_refused(capfd, tmp_path, monkeypatch, arguments, why):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capfd.readouterr()
    assert why in printed.err and len(printed.err.splitlines()) == 1
    assert why in json.loads(printed.out)["error"]
