"""Releases and trees of each project: what is kept of a wheel, under which name, and who is asked about it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from target_tree import TREES, make_tree, make_wheel

from allocator.faults.log import FaultLog
from stress.cli import main
from stress.command import target as command
from stress.engine.targets import build_engine
from stress.target import TargetUnavailable, add_target, list_targets, resolve
from stress.target.cache import targets_folder
from stress.target.project import PROJECTS
from stress.target.wheel import download_wheel, unpack


@pytest.fixture(autouse=True)
def wheels(tmp_path, monkeypatch):
    """The folder that pip finds wheels in; the cache is another."""
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


def kept():
    return sorted(path.name for path in targets_folder().iterdir())


WANTED = {
    "vllm": [
        "vllm/__init__.py",
        "vllm/v1/core/block_pool.py",
        "vllm/utils/hashing.py",
        "vllm/distributed/kv_events.py",
        "vllm/logging_utils/x.py",
        "vllm/multimodal/inputs.py",
        "vllm/config/cache.py",
        "vllm/platforms/cpu.py",
    ],
    "lmcache": ["lmcache/logging.py", "lmcache/v1/memory_management.py", "lmcache/integration/vllm/x.py"],
}
UNWANTED = {
    "vllm": [
        "vllm/_C.abi3.so",
        "vllm/py.typed",
        "vllm/v1/core/_fast.so",
        "vllm/model_executor/x.py",
        "vllm/utils/table.json",
        "other/v1/x.py",
        "vllm.py",
    ],
    "lmcache": ["lmcache/c_ops.cpython-311-x86_64-linux-gnu.so", "lmcache/v1/page.html", "csrc/x.py"],
}


@pytest.mark.parametrize("project", WANTED)
def test_sources_are_unpacked_and_nothing_compiled(tmp_path, project):
    names = WANTED[project] + UNWANTED[project]
    wheel = make_wheel(tmp_path / f"{project}-1.0-py3-none-any.whl", dict.fromkeys(names, "x"))
    unpack(PROJECTS[project], wheel, tmp_path / "to")
    found = [path.relative_to(tmp_path / "to") for path in (tmp_path / "to").rglob("*") if path.is_file()]
    assert sorted(map(str, found)) == sorted(WANTED[project])


def test_a_wheel_of_another_shape_is_one_line(tmp_path):
    wheel = make_wheel(tmp_path / "vllm-0.1-py3-none-any.whl", {"vllm/core/x.py": "x"})
    with pytest.raises(TargetUnavailable) as refused:
        unpack(PROJECTS["vllm"], wheel, tmp_path / "to")
    assert str(refused.value) == f"{wheel.name}: holds no vllm/v1/core; use another version"


@pytest.mark.parametrize(
    "platform", ["manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64"]
)
def test_a_wheel_of_any_python_3_is_taken_on_another_platform(tmp_path, wheels, monkeypatch, platform):
    monkeypatch.setenv("PIP_PLATFORM", "win_amd64")
    wheel = make_wheel(wheels / f"vllm-0.33.0-cp38-abi3-{platform}.whl", TREES["vllm"])
    assert download_wheel(PROJECTS["vllm"], "0.33.0", tmp_path / "to").name == wheel.name


def test_a_fetch_is_told_once_by_the_command_that_needs_it(wheels, capsys):
    make_wheel(wheels / "vllm-0.33.0-py3-none-any.whl", TREES["vllm"])
    told = f"fetched vllm==0.33.0, once, into {targets_folder()}"
    for times in (1, 0):
        main(["run", "vllm-small", "--launcher", "inline", "--set", "workload.requests=1"])
        assert capsys.readouterr().err.splitlines().count(told) == times


def test_a_release_that_can_not_be_had_is_one_line(capsys):
    assert main(["run", "vllm-small", "--launcher", "inline"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kvstress: vllm==0.33.0: could not be fetched (")


def test_modes_of_a_release_share_its_folder(wheels, capsys):
    make_wheel(wheels / "vllm-0.33.0-py3-none-any.whl", TREES["vllm"])
    folder = add_target("vllm-scheduler==0.33.0")
    assert folder == targets_folder() / "vllm-0.33.0"
    (wheels / "vllm-0.33.0-py3-none-any.whl").unlink()
    assert resolve("vllm==0.33.0") == folder
    assert [entry.record.target for entry in list_targets()] == ["vllm==0.33.0"]
    assert main(["target", "list"]) == 0
    assert capsys.readouterr().out.split()[0] == "vllm==0.33.0"
    assert main(["target", "remove", "vllm-scheduler==0.33.0"]) == 0
    assert capsys.readouterr().out == f"vllm-scheduler==0.33.0  {folder} is removed\n"
    assert kept() == []


def test_a_release_that_is_not_there_names_those_that_are(wheels, capsys):
    make_wheel(wheels / "lmcache-0.5.6-py3-none-any.whl", TREES["lmcache"])
    assert main(["target", "add", "lmcache==0.9.9"]) == 2
    assert capsys.readouterr().err == (
        "kvstress: target 'lmcache==0.9.9': there is no such release; the newest are 0.5.6\n"
    )


def test_what_can_not_be_fetched_is_the_machine_s(capsys):
    assert main(["target", "add", "vllm==0.33.0"]) == 3
    told = capsys.readouterr().err
    assert told.startswith("kvstress: vllm==0.33.0: could not be fetched (")
    assert told.endswith("); check the network and pip's index\n") and told.count("\n") == 1


@pytest.mark.parametrize("project", ["vllm", "lmcache"])
def test_a_release_and_a_folder_are_patched_alike(tmp_path, wheels, project):
    make_wheel(wheels / f"{project}-1.0-py3-none-any.whl", TREES[project])
    tree = make_tree(tmp_path / "tree", project)
    path, text = next(iter(TREES[project].items()))
    patch = tmp_path / "fix.diff"
    patch.write_text(f"--- a/{path}\n+++ b/{path}\n@@ -1,0 +1 @@\n+# one more\n")
    released, copied = add_target(f"{project}==1.0+{patch}"), add_target(f"path:{tree}+{patch}")
    for folder in (released, copied):
        assert (folder / path).read_text() == text.replace("\n", "\n# one more\n", 1)
    assert released.name.startswith(f"{project}-1.0+fix-") and copied.name.startswith("path-")
    assert (tree / path).read_text() == text
    assert resolve(f"path:{tree}") == tree


def test_check_asks_the_project_s_report(tmp_path, monkeypatch, capsys):
    tree = make_tree(tmp_path / "tree", "vllm")
    (tmp_path / "told.py").write_text('print(\'{"version": "1.0", "usable": false}\')')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(command.REPORTS, "vllm", "told")
    assert main(["target", "check", f"path:{tree}"]) == 1
    assert capsys.readouterr().out == "version      1.0\nusable       no\n"


def test_every_project_has_a_report_and_the_reference_none(capsys):
    assert command.REPORTS.keys() == PROJECTS.keys()
    assert main(["target", "check", "reference"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_repro_is_about_sglang(capsys):
    assert main(["repro", "--target", "vllm==0.33.0"]) == 2
    assert capsys.readouterr().err == (
        "kvstress: target 'vllm==0.33.0': repro asks SGLang's segment free; name reference, sglang==VERSION or an "
        "SGLang tree\n"
    )


@pytest.mark.parametrize(
    ("target", "project", "builder", "given"),
    [
        ("vllm==0.33.0+gone.diff", "vllm", "build.build_vllm", ("device", "warm", "rank", "faults")),
        ("vllm-scheduler==0.33.0+gone.diff", "vllm", "driven_build.build_driven", None),
        ("path:DIR", "lmcache", "build.build_lmcache", ("device", "warm", "rank", "faults")),
    ],
)
def test_an_engine_is_built_by_its_project_and_mode(tmp_path, monkeypatch, target, project, builder, given):
    """No named fault is in a tree; those that are around its objects go to whoever builds them, with our own loop."""
    tree = make_tree(tmp_path, project)
    package = f"stress.engine.{project}"
    name, _, function = builder.partition(".")
    module = ModuleType(f"{package}.{name}")
    setattr(module, function, lambda *passed: passed)
    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    arm = SimpleNamespace(target=target)
    told = {"device": "cpu", "warm": None, "rank": 3, "faults": FaultLog(("F25",))}
    built = build_engine("config", arm, "cpu", None, str(tree), told["faults"], rank=3)
    if given is None:
        assert built == ("config", tree, told["rank"])
    else:
        assert built == ("config", arm, tree, *(told[name] for name in given))
