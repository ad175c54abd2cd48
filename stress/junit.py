"""Writes JUnit XML that Jenkins, GitLab and the GitHub actions for test reports read.

`testsuites` holds `testsuite`s, which hold `testcase`s; a case passed, or has one `failure` or one `error`.
Counts are computed here from the cases, times are seconds with three decimals, and whatever XML 1.0 has no
place for (control characters, lone surrogates, terminal colours) is left out. The attributes are those that
Jenkins' junit-10.xsd and surefire share, so `testsuites` has no `skipped`; nothing is ever skipped here.
"""

from __future__ import annotations

import re
from typing import Literal
from xml.etree import ElementTree

import msgspec

TEXT_CHARACTERS = 16_000
MESSAGE_CHARACTERS = 400
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a case did not pass. `failure`: the target's fault. `error`: nothing was shown."""

    kind: Literal["failure", "error"]
    type: str
    message: str
    text: str = ""


class JunitCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test; `classname` and `name` make it the same test every night."""

    classname: str
    name: str
    time_s: float = 0.0
    problem: Problem | None = None
    output: str = ""


class JunitSuite(msgspec.Struct, frozen=True, kw_only=True):
    """The tests of one run. `started_utc` is `YYYY-MM-DDTHH:MM:SSZ`."""

    name: str
    cases: list[JunitCase]
    started_utc: str
    hostname: str
    time_s: float = 0.0
    properties: dict[str, str] = {}


def junit_bytes(name: str, suites: list[JunitSuite]) -> bytes:
    """The document, UTF-8 with its declaration."""
    cases = [case for suite in suites for case in suite.cases]
    root = ElementTree.Element(
        "testsuites", {"name": clean(name), **_counts(cases), "time": _time(sum(s.time_s for s in suites))}
    )
    for suite in suites:
        root.append(_suite(suite))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def clean(text: str) -> str:
    """The text without what XML 1.0 can't hold."""
    return _ILLEGAL.sub("", _COLOUR.sub("", text))


def _suite(suite: JunitSuite) -> ElementTree.Element:
    element = ElementTree.Element(
        "testsuite",
        {
            "name": clean(suite.name),
            **_counts(suite.cases),
            "skipped": "0",
            "time": _time(suite.time_s),
            "timestamp": suite.started_utc.rstrip("Z"),
            "hostname": clean(suite.hostname) or "localhost",
        },
    )
    if suite.properties:
        properties = ElementTree.SubElement(element, "properties")
        for name, value in suite.properties.items():
            ElementTree.SubElement(properties, "property", {"name": clean(name), "value": clean(value)})
    for case in suite.cases:
        element.append(_case(case))
    return element


def _case(case: JunitCase) -> ElementTree.Element:
    names = {"classname": clean(case.classname), "name": clean(case.name), "time": _time(case.time_s)}
    element = ElementTree.Element("testcase", names)
    if case.problem is not None:
        problem = case.problem
        told = {
            "type": clean(problem.type),
            "message": _cut(" ".join(clean(problem.message).split()), MESSAGE_CHARACTERS),
        }
        ElementTree.SubElement(element, problem.kind, told).text = _cut(clean(problem.text), TEXT_CHARACTERS)
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _cut(clean(case.output), TEXT_CHARACTERS)
    return element


def _counts(cases: list[JunitCase]) -> dict[str, str]:
    kinds = [case.problem.kind for case in cases if case.problem is not None]
    return {
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
    }


def _time(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} [...]"
