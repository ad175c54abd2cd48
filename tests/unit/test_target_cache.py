"""The cache: a target is whole or not there, whoever adds it at the same time and whatever ends in between."""

import os
import subprocess
import sys
import threading

import pytest
from target_tree import make_wheel

from stress.target.cache import keep, targets_folder
from stress.target.name import TargetError, TargetUnavailable
from stress.target.project import PROJECTS
from stress.target.wheel import download_wheel, unpack

SGLANG = PROJECTS["sglang"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))


def build(folder):
    (folder / "file").write_text("whole")


def left():
    return sorted(path.name for path in targets_folder().iterdir())


def test_what_is_kept_is_not_built_again():
    folder = keep("one", build)
    assert (folder / "file").read_text() == "whole"

    def refuse(folder):
        raise AssertionError("built twice")

    assert keep("one", refuse) == folder
    assert left() == ["one"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, ValueError])
def test_an_interrupted_add_leaves_nothing(ending):
    def stop(folder):
        build(folder)
        raise ending

    with pytest.raises(ending):
        keep("one", stop)
    assert left() == []


def test_two_adds_at_once_give_one_whole_target():
    both_building = threading.Barrier(2, timeout=30)
    folders = []

    def slow(folder):
        both_building.wait()
        build(folder)

    threads = [threading.Thread(target=lambda: folders.append(keep("one", slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert folders == [targets_folder() / "one"] * 2
    assert left() == ["one"]


def test_what_a_killed_add_left_is_removed_and_a_living_one_s_is_not():
    code = (
        "import os; from stress.target.cache import keep\n"
        "keep('dead', lambda folder: (print(folder, flush=True), os._exit(9)))"
    )
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert dead.returncode == 9, dead.stderr
    assert [name.startswith(".building-") for name in left()] == [True]
    seen = []

    def look(folder):
        build(folder)
        keep("two", build)
        seen.append((folder / "file").exists())

    keep("one", look)
    assert seen == [True]
    assert left() == ["one", "two"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, where not even root makes a folder")
def test_a_folder_that_can_not_be_written_is_one_line(monkeypatch):
    monkeypatch.setenv("KVSTRESS_CACHE", "/proc/nothing")
    with pytest.raises(TargetUnavailable, match="set KVSTRESS_CACHE"):
        keep("one", build)


def test_no_index_is_a_fault_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        TargetUnavailable, match=r"sglang==0\.5\.23: could not be fetched .*; check the network"
    ):
        download_wheel(SGLANG, "0.5.23", tmp_path)


def test_a_release_that_is_not_there_is_a_wrong_name(tmp_path, monkeypatch):
    make_wheel(tmp_path / "sglang-0.5.22-py3-none-any.whl", {"sglang/srt/mem_cache/x.py": "x"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(TargetError, match=r"no such release; the newest are 0\.5\.22"):
        download_wheel(SGLANG, "0.5.99", tmp_path / "to")


def test_a_wheel_is_unpacked_in_part():
    names = [
        "sglang/version.py",
        "sglang/srt/mem_cache/x.py",
        "sglang/srt/mem_cache/rust_tree_core/mem_cache.so",
        "sglang/kernels/k.cu",
        "sglang/srt/rust_extensions/_server.so",
        "sglang/test/data.bin",
        "sglang/multimodal_gen/x.py",
    ]
    folder = targets_folder()
    folder.mkdir(parents=True)
    wheel = make_wheel(folder / "x.whl", dict.fromkeys(names, "x"))
    unpack(SGLANG, wheel, folder / "to")
    found = sorted(
        str(path.relative_to(folder / "to")) for path in (folder / "to").rglob("*") if path.is_file()
    )
    assert found == sorted(names[:4])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"sglang/srt/../../../out.py": "x"}, "outside of it"),
        ({"sglang/version.py": "x"}, "no sglang/srt/mem_cache"),
        (None, "not a whole wheel"),
    ],
)
def test_a_wheel_that_can_not_be_used_is_one_line(tmp_path, content, why):
    wheel = tmp_path / "x.whl"
    if content is None:
        wheel.write_text("no zip")
    else:
        make_wheel(wheel, content)
    with pytest.raises(TargetUnavailable, match=why):
        unpack(SGLANG, wheel, tmp_path / "to" / "tree")
    assert not (tmp_path / "out.py").exists()
