"""A small night on real ranks: a canary, a fault that comes back, and a seed that is run first."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from junit_rules import broken_document

from stress.cli import main
from stress.engine.reference.engine import ReferenceEngine

pytestmark = pytest.mark.multi

SMALL = '"workload.requests" = 60, "check.require" = []'
NIGHT = """
[nightly]
seeds = [1, 2]
[[nightly.run]]
config = "smoke"
set = {{ {small}, "arms.patched.release" = ["{release}"] }}
[nightly.canary]
config = "smoke"
arm = "{canary}"
set = {{ {small} }}
"""


@pytest.fixture
def night(tmp_path, capsys):
    """Exit code, verdict document and the names of the runs as they were made."""

    def call(out, *options, release="filter-per-group", canary="unpatched", launcher="local"):
        config = tmp_path / "night.toml"
        config.write_text(NIGHT.format(small=SMALL, release=release, canary=canary))
        code = main(
            ["nightly", str(config), "--launcher", launcher, "--json", "--out", str(tmp_path / out), *options]
        )
        assert broken_document((tmp_path / out / "junit.xml").read_bytes()) == []
        printed = capsys.readouterr()
        told = [
            line.split()[2].rstrip(":") for line in printed.err.splitlines() if line.startswith("nightly ")
        ]
        return code, json.loads(printed.out), told

    return call


def test_a_clean_night_passes_with_its_canary_and_not_without(night, tmp_path):
    code, document, made = night("clean")
    assert (code, document["verdict"]) == (0, "pass")
    assert made == ["canary", "smoke-seed1", "smoke-seed2"]
    assert document["canary"]["totals"]["asserts"] == 2
    run = json.loads((tmp_path / "clean" / "smoke-seed2" / "verdict.json").read_text())
    assert (run["seed"], run["digest"]) == (2, document["runs"][1]["digest"])
    assert (tmp_path / "clean" / "smoke-seed2" / "ops" / "patched-1.jsonl.gz").exists()
    cases = ElementTree.parse(tmp_path / "clean" / "junit.xml").getroot().findall("testsuite/testcase")
    assert len(cases) == 1 + 2 * 3
    ranks = [case for case in cases if "rank " in case.get("name")]
    assert all(0 < float(case.get("time")) < 30 for case in ranks)
    code, document, _ = night("blind", "--seed", "1", canary="patched", launcher="inline")
    assert (code, document["verdict"], document["canary"]["raw_verdict"]) == (3, "unknown", "pass")


def test_a_real_fault_fails_is_told_and_runs_first_the_next_night(night, tmp_path):
    code, document, _ = night("one", "--seed", "2", release="unpatched")
    assert (code, document["verdict"]) == (1, "fail")
    first = (tmp_path / "one" / "summary.md").read_text()
    assert "I1 in pool swa" in first
    assert "(linker load)" in first
    failure = ElementTree.parse(tmp_path / "one" / "junit.xml").getroot().find(".//failure")
    assert "(linker load)" in failure.text
    code, document, made = night("two", "--seed", "1", release="unpatched", launcher="inline")
    assert (code, made) == (1, ["smoke-seed2", "canary", "smoke-seed1"])
    assert document["runs"][0]["kept"] is True


def test_a_target_that_says_what_no_file_holds_is_told_all_the_same(night, tmp_path, monkeypatch):
    """A message with a lone surrogate, as of a file name that is no UTF-8: the rank must not be lost by it."""

    def refuse(engine, rows):
        raise OSError("no such library: \udcff\x00\x1b[31m]]>.so")

    monkeypatch.setattr(ReferenceEngine, "extend", refuse)
    code, document, _ = night("odd", "--seed", "1", launcher="inline")
    assert (code, document["runs"][0]["totals"]["errors"]) == (1, 2)
    assert "first OSError: no such library: \\udcff" in document["runs"][0]["reasons"][0]
    content = (tmp_path / "odd" / "junit.xml").read_bytes()
    failure = ElementTree.fromstring(content).find(".//failure")
    assert failure.get("message") == "OSError: no such library: \\udcff]]>.so"
    assert "Traceback" in failure.text
    assert main(["report", str(tmp_path / "odd")]) == 0


def test_an_engine_that_can_not_be_built_says_why_whatever_it_says(night, monkeypatch):
    def refuse(*_):
        raise ValueError("no tree in \udcff")

    monkeypatch.setattr("stress.rank_parts.build_engine", refuse)
    code, document, _ = night("odd", "--seed", "1", launcher="inline")
    assert code == 3
    assert "lost: ValueError: no tree in \\udcff" in document["runs"][0]["reasons"][0]
