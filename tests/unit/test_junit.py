"""JUnit XML by the rules of the common schemas (Jenkins' junit-10.xsd, surefire), written out here."""

import re
from xml.etree import ElementTree

import pytest

from stress.junit import JunitCase, JunitSuite, Problem, clean, junit_bytes
from stress.nightly_junit import rank_problem

# element -> (attributes that it must have, that it may have, children in their order)
COUNTS = {"tests", "failures", "errors", "time"}
RULES = {
    "testsuites": ({"name"} | COUNTS, set(), ["testsuite"]),
    "testsuite": ({"name", "skipped", "timestamp", "hostname"} | COUNTS, set(), ["properties", "testcase"]),
    "properties": (set(), set(), ["property"]),
    "property": ({"name", "value"}, set(), []),
    "testcase": ({"classname", "name", "time"}, set(), ["failure", "error", "system-out"]),
    "failure": ({"type", "message"}, set(), []),
    "error": ({"type", "message"}, set(), []),
    "system-out": (set(), set(), []),
}
ONCE = {"properties", "failure", "error", "system-out"}


def broken_rules(element):
    """What is wrong with an element and all below it, by the schema's rules."""
    must, may, order = RULES[element.tag]
    found = [f"{element.tag} lacks {name}" for name in sorted(must - set(element.attrib))]
    found += [f"{element.tag} has {name}" for name in sorted(set(element.attrib) - must - may)]
    tags = [child.tag for child in element]
    found += [f"{element.tag} holds {tag}" for tag in tags if tag not in order]
    places = [order.index(tag) for tag in tags if tag in order]
    found += [f"{element.tag}: children out of order"] if places != sorted(places) else []
    found += [f"{element.tag}: two {tag}" for tag in ONCE if tags.count(tag) > 1]
    if {"failure", "error"} <= set(tags):
        found.append("testcase: a failure and an error")
    if "time" in element.attrib and not re.fullmatch(r"[0-9]+\.[0-9]{3}", element.get("time")):
        found.append(f"{element.tag}: time {element.get('time')}")
    if "timestamp" in element.attrib and not re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.get("timestamp")
    ):
        found.append(f"{element.tag}: timestamp {element.get('timestamp')}")
    if "tests" in element.attrib:
        for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            there = sum(1 for _ in element.iter(tag))
            if element.get(count) != str(there):
                found.append(f"{element.tag}: {count} {element.get(count)}, and there are {there}")
    return found + [each for child in element if child.tag in RULES for each in broken_rules(child)]


def written(*suites):
    content = junit_bytes("kvstress night", list(suites))
    assert content.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    return ElementTree.fromstring(content)


def suite(*cases, **fields):
    return JunitSuite(
        name="smoke-seed1", cases=list(cases), started_utc="2026-01-02T03:04:05Z", hostname="gpu7", **fields
    )


FAILURE = Problem(kind="failure", type="finding I1", message="page 0\nreturned", text="17 lent\n40 freed")
ERROR = Problem(kind="error", type="lost", message="killed by signal 9")


def test_a_document_holds_to_the_schema_and_its_counts_agree():
    root = written(
        suite(
            JunitCase(
                classname="kvstress.smoke", name="rank 0", time_s=1.23456, problem=FAILURE, output="status"
            ),
            JunitCase(classname="kvstress.smoke", name="rank 1", problem=ERROR),
            JunitCase(classname="kvstress.smoke", name="rank 2", time_s=-0.1),
            properties={"seed": "1"},
            time_s=12.5,
        ),
        suite(JunitCase(classname="kvstress.smoke", name="rank 0")),
        suite(),
    )
    assert broken_rules(root) == []
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "time": "12.500",
    }
    first = root.find("testsuite/testcase")
    assert (first.get("time"), first.find("failure").get("message")) == ("1.235", "page 0 returned")
    assert first.find("failure").text == "17 lent\n40 freed"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: root[0].set("failures", "7"), "testsuite: failures 7, and there are 0"),
        (lambda root: root.attrib.pop("tests"), "testsuites lacks tests"),
        (lambda root: root[0].append(ElementTree.Element("properties")), "testsuite: children out of order"),
        (lambda root: root[0][0].set("time", "1,2"), "testcase: time 1,2"),
        (lambda root: root.set("colour", "red"), "testsuites has colour"),
        (lambda root: root[0][0].append(ElementTree.Element("testsuite")), "testcase holds testsuite"),
    ],
)
def test_the_rules_refuse_a_spoiled_document(spoil, message):
    root = written(suite(JunitCase(classname="a", name="b")))
    assert broken_rules(root) == []
    spoil(root)
    assert message in broken_rules(root)


def test_characters_that_xml_cannot_hold_are_left_out_everywhere():
    dirty = 'a\x00\x1b[31mb\x08\ud800\ufffe\U0001f600é\t<&">]]>'
    held = 'ab\U0001f600é\t<&">]]>'
    assert clean(dirty) == held
    root = written(
        JunitSuite(
            name=dirty,
            hostname=dirty,
            started_utc="2026-01-02T03:04:05Z",
            properties={dirty: dirty},
            cases=[
                JunitCase(
                    classname=dirty,
                    name=dirty,
                    output=dirty,
                    problem=Problem(kind="failure", type=dirty, message=dirty, text=dirty),
                )
            ],
        )
    )
    assert broken_rules(root) == []
    assert root[0].get("name") == held
    assert root.find("testsuite/testcase/failure").text == held
    assert root.find("testsuite/testcase/system-out").text == held


def test_a_text_without_an_end_is_cut():
    problem = Problem(kind="failure", type="error", message="m" * 5000, text="t" * 50_000)
    failure = written(suite(JunitCase(classname="a", name="b", problem=problem))).find(
        "testsuite/testcase/failure"
    )
    assert (len(failure.get("message")), len(failure.text)) == (406, 16_006)


RANK = {
    "status": "finished",
    "findings": {},
    "asserts": 0,
    "errors": 0,
    "first_finding": None,
    "first_assert": None,
    "first_error": None,
    "checker_crashed": None,
    "message": None,
}
FINDING = {
    "rule": "I1",
    "pool": "swa",
    "operation": 4,
    "virtual_s": 1.2,
    "message": "page 0",
    "history": ["3 lent"],
}
ASSERT = {"where": "free_group_end", "operation": 5, "virtual_s": 1.3, "message": "5120 > 4096"}
ASSERTED = {"asserts": 1, "first_assert": ASSERT, "status": "asserted"}
RAISED = {
    "kind": "KeyError",
    "operation": 6,
    "virtual_s": 1.4,
    "message": "'a'",
    "traceback": "Traceback ...",
}


@pytest.mark.parametrize(
    ("fields", "kind", "type_", "message"),
    [
        ({}, None, None, None),
        (
            {"findings": {"I1": 3}, "first_finding": FINDING, **ASSERTED},
            "failure",
            "finding I1",
            "I1 in pool swa, operation 4, 1.2 s: page 0",
        ),
        (ASSERTED, "failure", "assert", "free_group_end: 5120 > 4096"),
        ({"errors": 1, "first_error": RAISED, "status": "errored"}, "failure", "error", "KeyError: 'a'"),
        ({"status": "lost", "message": "killed by signal 9"}, "error", "lost", "killed by signal 9"),
        ({"status": "stopped"}, "error", "stopped", "no result"),
        ({"checker_crashed": "Traceback\nValueError: x"}, "error", "checker", "ValueError: x"),
        ({"status": "lost", "message": "gone", "findings": {"I1": 3}, "first_finding": FINDING}, "failure",
         "finding I1", "I1 in pool swa, operation 4, 1.2 s: page 0"),
    ],
)  # fmt: skip
def test_a_rank_is_a_failure_by_what_it_did_and_an_error_by_what_it_did_not_show(
    fields, kind, type_, message
):
    problem = rank_problem(RANK | fields)
    if kind is None:
        assert problem is None
        return
    assert (problem.kind, problem.type, problem.message) == (kind, type_, message)
    for part in ("first_finding", "first_assert", "first_error"):
        if fields.get(part):
            assert fields[part]["message"] in problem.text
    if "first_finding" in fields:
        assert "  3 lent" in problem.text
    if fields.get("status") == "lost":
        assert "status lost" in problem.text
