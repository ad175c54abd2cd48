"""The import rules, read from the source: dependencies go stress -> linker -> allocator, and no way back.

Relative imports and imports inside functions count too.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("allocator", "linker", "stress", "configs")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache  # every rule reads every file
def imports_of(path):
    """Dotted names that a file imports; `from a import b` counts as a and as a.b."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def files(*tops):
    found = []
    for top in tops:
        path = ROOT / top
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert found, f"no source below {tops}"
    return found


def within(name, package):
    return name == package or name.startswith(f"{package}.")


def offences(tops, allowed=(), forbidden=OURS):
    """`file imports name` for each import of `forbidden` that is not `allowed`."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(*tops)
        for name in sorted(imports_of(path))
        if any(within(name, package) for package in forbidden)
        and not any(within(name, package) for package in allowed)
        # `from stress import operation` names the bare package as well
        and not any(within(package, name) for package in allowed)
    ]


RULES = {
    "allocator knows neither linker nor stress": (("allocator",), ("allocator",)),
    "linker knows of allocator its contract alone": (("linker",), ("linker", "allocator.contract")),
    "the vocabulary imports nothing of ours": (("stress/operation.py",), ()),
    "checks know operations and the record of a finding": (
        ("stress/check",),
        ("stress.operation", "stress.result", "stress.check"),
    ),
    "serving knows the engine's contract alone": (
        ("stress/serving",),
        ("stress.operation", "stress.engine.contract", "stress.engine.scheduling", "stress.serving")
        + ("stress.step_plan", "stress.words"),
    ),
    "the engine's contract knows operations alone": (
        ("stress/engine/contract.py",),
        ("stress.operation", "stress.check.event"),
    ),
    "the workload knows no engine": (("stress/workload",), ("stress.workload", "stress.words")),
    "what ranks tell knows operations alone": (("stress/result.py",), ("stress.operation",)),
}


@pytest.mark.parametrize("rule", RULES)
def test_own_imports(rule):
    tops, allowed = RULES[rule]
    assert offences(tops, allowed) == []


ELSEWHERE = {
    "ray": tuple(f"stress/launch/ray{part}.py" for part in ("", "_actor", "_evidence", "_peers")),
    "torch.distributed": ("stress/launch",),
    "click": ("stress/cli.py", "stress/command"),
    "rich": ("stress/command", "stress/report_text.py", "stress/nightly_report.py", "stress/seeds_report.py"),
    "random": (),
    "pickle": (),
}


@pytest.mark.parametrize("library", ELSEWHERE)
def test_a_library_is_imported_where_it_belongs_and_nowhere_else(library):
    allowed = [ROOT / place for place in ELSEWHERE[library]]
    found = [
        f"{path.relative_to(ROOT)} imports {library}"
        for path in files("allocator", "linker", "stress", "configs")
        if any(within(name, library) for name in imports_of(path))
        and not any(path == place or place in path.parents for place in allowed)
    ]
    assert found == []


@pytest.mark.parametrize("part", ["rank", "rank_evidence", "rank_parts"])
def test_a_rank_is_alone_with_its_engine(part):
    """No Ray, no collective, no launcher, and no file: what it has to say goes through `emit`."""
    path = ROOT / f"stress/{part}.py"
    names = imports_of(path)
    outside = (
        "ray",
        "torch.distributed",
        "pathlib",
        "io",
        "stress.launch",
        "stress.coordinator",
        "stress.record",
    )
    assert [name for name in names if any(within(name, package) for package in outside)] == []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    opened = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "open"]
    assert opened == []


def test_the_coordinator_knows_no_launcher():
    assert offences(("stress/coordinator.py",), forbidden=("ray", "torch", "multiprocessing")) == []
    assert (
        offences(("stress/coordinator.py",), ("stress.launch.contract",), forbidden=("stress.launch",)) == []
    )


def test_help_imports_neither_torch_nor_ray():
    code = (
        "import sys; from stress.cli import main; code = main(['run', '--help']);"
        "print(sorted({'torch', 'ray', 'numpy'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.splitlines()[-1] == "[] 0", done.stderr


@pytest.mark.parametrize("path", files("allocator", "linker", "stress", "configs"), ids=module_name)
def test_a_module_states_its_contract(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path.relative_to(ROOT)} has no docstring"


def test_the_reader_of_imports_sees_each_kind(tmp_path):
    """The control: a reader that saw nothing would pass every rule."""
    path = ROOT / "stress/check/rules/x.py"
    source = (
        "import ray.util\nfrom . import y\nfrom ...launch import local\ndef f():\n  from torch import cuda\n"
    )
    fake = type("Fake", (), {"name": "x.py", "read_text": lambda self, encoding: source})()
    fake.relative_to = path.relative_to
    names = imports_of(fake)
    assert {"ray.util", "stress.check.rules.y", "stress.launch.local", "torch.cuda"} <= names
