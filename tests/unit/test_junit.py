"""JUnit XML by the rules of the common schemas, and the rules themselves on spoiled documents."""

from xml.etree import ElementTree

import pytest
from junit_rules import broken_document, broken_rules

from stress.junit import JunitCase, JunitSuite, Problem, clean, junit_bytes
from stress.nightly_junit import rank_problem


def written(*suites):
    content = junit_bytes("kvstress night", list(suites))
    assert broken_document(content) == []
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
        suite(JunitCase(classname="kvstress.other", name="rank 0")),
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


SPOILS = [
    (lambda root: root[0].set("failures", "7"), "testsuite: failures 7, and there are 1"),
    (lambda root: root[0].set("skipped", "1"), "testsuite: skipped 1, and there are 0"),
    (lambda root: root.attrib.pop("tests"), "testsuites lacks tests"),
    (lambda root: root[0].append(ElementTree.Element("properties")), "testsuite: children out of order"),
    (lambda root: root[0][1].set("time", "1,2"), "testcase: time '1,2'"),
    (lambda root: root[0][1].set("time", "1e-05"), "testcase: time '1e-05'"),
    (
        lambda root: root[0].set("timestamp", "2026-01-02T03:04:05Z"),
        "testsuite: timestamp '2026-01-02T03:04:05Z'",
    ),
    (lambda root: root[0].set("hostname", ""), "testsuite: hostname ''"),
    (lambda root: root[0][1].set("name", " "), "testcase: name ' '"),
    (lambda root: root.set("colour", "red"), "testsuites has colour"),
    (lambda root: root[0][1].append(ElementTree.Element("testsuite")), "testcase holds testsuite"),
    (
        lambda root: root[0][2].append(ElementTree.Element("skipped")),
        "testcase: more than one of failure, error",
    ),
    (lambda root: root[0][2].append(ElementTree.Element("failure")), "testcase: two failure"),
    (lambda root: root[0][2][0].attrib.pop("type"), "failure lacks type"),
    (lambda root: setattr(root[0], "text", "words"), "testsuite: text 'words'"),
    (lambda root: root[0][2].set("name", "b"), "two tests ('a', 'b')"),
    (lambda root: setattr(root, "tag", "suites"), "the root is suites"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILS)
def test_the_rules_refuse_a_spoiled_document(spoil, message):
    cases = [JunitCase(classname="a", name="b"), JunitCase(classname="a", name="c", problem=FAILURE)]
    root = written(suite(*cases, properties={"seed": "1"}))
    spoil(root)
    found = broken_document(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
    assert any(told.startswith(message) for told in found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<testsuites/>", "no declaration of UTF-8"),
        (b"<testsuites", "not well formed: "),
        (b"<testsuites>\xff</testsuites>", "not well formed: 'utf-8' codec can't decode"),
        (b"<testsuites>\x1b</testsuites>", "not well formed: not well-formed (invalid token)"),
        (b"<testsuites>&#0;</testsuites>", "not well formed: reference to invalid character"),
        ("<testsuites>\ufffe</testsuites>".encode(), "not well formed: not well-formed (invalid token)"),
    ],
)
def test_the_rules_refuse_what_is_no_document(content, message):
    head = b"" if message.startswith("no decl") else b"<?xml version='1.0' encoding='utf-8'?>\n"
    assert any(told.startswith(message) for told in broken_document(head + content))


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
