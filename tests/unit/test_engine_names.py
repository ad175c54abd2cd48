"""No rule, no launcher and no line of the serving loop names an engine: what differs between them is a capability.

Sources of public bugs stand in docstrings and comments; names and other strings are what a branch would be made of.
"""

import ast
import re
from pathlib import Path

import pytest

STRESS = Path(__file__).resolve().parents[2] / "stress"
ENGINE = re.compile(r"sglang|vllm|lmcache|reference_engine|ReferenceEngine", re.IGNORECASE)
NEUTRAL = (
    "check",
    "serving",
    "launch",
    "probe",
    "content",
    "operation.py",
    "operator.py",
    "rank.py",
    "digest.py",
)


def named(source: str) -> list[str]:
    """Identifiers, imported modules and strings of a source that name an engine, but for docstrings."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    words = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.append(node.value)
        words += [
            getattr(node, field) for field in ("id", "attr", "name", "module", "arg") if hasattr(node, field)
        ]
    return [word for word in words if isinstance(word, str) and ENGINE.search(word)]


@pytest.mark.parametrize("part", NEUTRAL)
def test_nothing_here_names_an_engine(part):
    files = [STRESS / part] if part.endswith(".py") else sorted((STRESS / part).rglob("*.py"))
    assert files
    assert {
        str(file.relative_to(STRESS)): found for file in files if (found := named(file.read_text()))
    } == {}


@pytest.mark.parametrize(
    "source",
    [
        "from stress.engine.vllm import engine",
        "if target == 'vllm':\n    pass",
        "is_sglang = True",
        "x.lmcache()",
    ],
)
def test_a_name_of_one_is_seen(source):
    assert named(f'"""As vllm#1 says."""\n{source}\n')
    assert not named('"""As vllm#1 says."""\n')
