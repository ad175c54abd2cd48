"""Whatever a target says, junit.xml and summary.md hold to their formats, and the text is told as far as it goes."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from fake_ranks import FINDING, Ranks

from stress.result import Assertion, RankError

ODD = {
    "control characters": ("a\x00b\x07\x1b[31mred\x1b[0m\x7f", "abred\x7f"),
    "ends of CDATA and tags": ("]]></failure><x a='\"'>&amp;&#0;", None),
    "escaped surrogates": ("\\udcff.so: no such file", None),
    "noncharacters": ("\ufffe\uffff\U0001f600", "\U0001f600"),
    "line ends": ("one\r\ntwo\rthree\u2028four", "one two three four"),
    "nothing": ("", None),
    "blanks": (" \n\t ", ""),
    "a long line": ("x" * 100_000, "x" * 200),
}


def odd_ranks(text):
    """One rank with a finding, one with an assert, an error or no word, all of them saying `text`."""
    finding = msgspec.structs.replace(FINDING, message=text, history=[text] * 3)
    assertion = Assertion(operation=1, virtual_us=2, where="free", message=text)
    error = RankError(operation=1, virtual_us=2, kind="ValueError", message=text, traceback=f"T\n{text}")
    shown = {
        "finding": {"findings": {"I1": 1}, "first_finding": finding},
        "assert": {"status": "asserted", "asserts": 1, "first_assert": assertion},
        "error": {"status": "errored", "errors": 1, "first_error": error},
        "lost": {"status": "lost", "message": text},
        "checker": {"checker_crashed": f"Traceback\n{text}"},
    }

    class Odd(Ranks):
        def _rank(self, config, arm, rank, told):
            plain = Ranks._rank(self, config, arm, rank, "pass" if told in shown else told)
            return msgspec.structs.replace(plain, **shown[told]) if told in shown and rank == 1 else plain

    return Odd._rank


@pytest.mark.parametrize("told", ["finding", "assert", "error", "lost", "checker"])
@pytest.mark.parametrize("what", ODD)
def test_odd_text_is_held(night, monkeypatch, what, told):
    text, held = ODD[what]
    rank = odd_ranks(text)
    plain = Ranks._rank
    monkeypatch.setattr(Ranks, "_rank", lambda *a: (plain if a[-1] in ("fail", "pass") else rank)(*a))
    # The fixture holds junit.xml against the rules.
    code, _, _ = night("out", "--seed", "1", runs=told)
    assert code == (3 if told in ("lost", "checker") else 1)
    suite = ElementTree.parse("out/junit.xml").getroot().find("testsuite[@name='smoke-store_shared-seed1']")
    problem = suite.find("testcase/error" if code == 3 else "testcase/failure")
    assert (held if held is not None else text) in " ".join((problem.get("message") + problem.text).split())
    assert len(problem.text) <= 16_006 and len(problem.get("message")) <= 406
    summary = Path("out/summary.md").read_text()
    assert "\x1b" not in summary and "\x00" not in summary
    assert max(map(len, summary.splitlines())) < 1000


def test_a_history_of_many_lines_is_cut_and_the_table_stays(night, monkeypatch):
    lines = [f"{number} lent full page {number} to request 4" for number in range(40_000)]
    long = msgspec.structs.replace(FINDING, history=lines)
    plain = Ranks._rank

    def rank(self, config, arm, number, told):
        return msgspec.structs.replace(plain(self, config, arm, number, told), first_finding=long)

    monkeypatch.setattr(Ranks, "_rank", rank)
    assert sum(map(len, lines)) > 1_000_000
    code, _, _ = night("out", "--seed", "1", runs="fail")
    assert code == 1
    assert Path("out/junit.xml").stat().st_size < 1_000_000
    assert Path("out/summary.md").stat().st_size < 1_000_000
    assert "more lines]" in Path("out/summary.md").read_text()
