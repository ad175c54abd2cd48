"""What a JUnit XML document must hold, by the schemas and readers in use, written out as rules.

The elements and attributes are those of Jenkins' junit-10 schema; where the older schema of Ant's report is stricter
and does not contradict it, its rule holds: names are not empty, timestamps have no zone, a problem has a type. What
GitHub's, GitLab's and Jenkins' readers count must be what is there. Every rule is one sentence of a list.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

# element -> (attributes that it must have, that it may have, children in their order)
COUNTS = {"tests", "failures", "errors", "time"}
RULES = {
    "testsuites": ({"name"} | COUNTS, set(), ["testsuite"]),
    "testsuite": ({"name", "skipped", "timestamp", "hostname"} | COUNTS, set(), ["properties", "testcase"]),
    "properties": (set(), set(), ["property"]),
    "property": ({"name", "value"}, set(), []),
    "testcase": ({"classname", "name", "time"}, set(), ["skipped", "error", "failure", "system-out"]),
    "skipped": (set(), {"message"}, []),
    "failure": ({"type", "message"}, set(), []),
    "error": ({"type", "message"}, set(), []),
    "system-out": (set(), set(), []),
}
ONCE = {"properties", "skipped", "failure", "error", "system-out"}
PROBLEMS = ("failure", "error", "skipped")
TEXTS = {"failure", "error", "skipped", "system-out"}
SHAPES = {
    "time": r"[0-9]+(\.[0-9]+)?",  # no exponent, no comma, no sign
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
    **dict.fromkeys(("tests", "failures", "errors", "skipped"), r"[0-9]+"),
    **dict.fromkeys(("name", "classname", "hostname", "type"), r"(?s).*\S.*"),
}


def broken_document(content: bytes) -> list[str]:
    """What is wrong with a file's bytes; [] for a document that holds to the rules."""
    if not re.match(rb"<\?xml version='1\.0' encoding='utf-8'\?>\n", content):
        return ["no declaration of UTF-8"]
    try:
        content.decode("utf-8")
        root = ElementTree.fromstring(content)
    except (UnicodeDecodeError, ElementTree.ParseError) as error:
        return [f"not well formed: {error}"]
    found = [] if root.tag == "testsuites" else [f"the root is {root.tag}"]
    names = Counter((case.get("classname"), case.get("name")) for case in root.iter("testcase"))
    found += [f"two tests {name}" for name, count in names.items() if count > 1]
    return found + broken_rules(root)


def broken_rules(element: ElementTree.Element) -> list[str]:
    """What is wrong with an element and all below it."""
    if element.tag not in RULES:
        return []  # its parent has told
    must, may, order = RULES[element.tag]
    found = [f"{element.tag} lacks {name}" for name in sorted(must - set(element.attrib))]
    found += [f"{element.tag} has {name}" for name in sorted(set(element.attrib) - must - may)]
    found += [
        f"{element.tag}: {name} {value!r}"
        for name, value in element.attrib.items()
        if name in SHAPES and not re.fullmatch(SHAPES[name], value)
    ]
    found += _broken_children(element, [child.tag for child in element], order)
    if "tests" in element.attrib:
        found += _broken_counts(element)
    return found + [each for child in element for each in broken_rules(child)]


def _broken_children(element: ElementTree.Element, tags: list[str], order: list[str]) -> list[str]:
    found = [f"{element.tag} holds {tag}" for tag in tags if tag not in order]
    places = [order.index(tag) for tag in tags if tag in order]
    found += [f"{element.tag}: children out of order"] if places != sorted(places) else []
    found += [f"{element.tag}: two {tag}" for tag in sorted(ONCE) if tags.count(tag) > 1]
    if sum(tag in tags for tag in PROBLEMS) > 1:
        found.append(f"{element.tag}: more than one of {', '.join(PROBLEMS)}")
    stray = [child.tail or "" for child in element] + ["" if element.tag in TEXTS else element.text or ""]
    return found + [f"{element.tag}: text {text.strip()[:20]!r}" for text in stray if text.strip()]


def _broken_counts(element: ElementTree.Element) -> list[str]:
    found = []
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
        there = sum(1 for _ in element.iter(tag))
        if count in element.attrib and element.get(count) != str(there):
            found.append(f"{element.tag}: {count} {element.get(count)}, and there are {there}")
    return found
