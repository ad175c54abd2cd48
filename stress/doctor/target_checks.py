"""What real targets need beyond the reference: pip to fetch a release, and what its memory code imports."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from stress.doctor.check import Check

PIP_TIMEOUT_S = 30.0
# The extras, by the names under which they are imported. LMCache's allocator wants torch alone.
IMPORTS = {
    "sglang": ("triton", "pydantic", "pydantic_core", "packaging", "typing_extensions"),
    "vllm": ("pydantic_core", "packaging", "typing_extensions"),
}
_CURES = {
    "sglang": "pip install 'kvstress[sglang]'; beside a ROCm build of torch leave triton out, it brings its own",
    "vllm": "pip install 'kvstress[vllm]'",
}


def pip_check(command: tuple[str, ...] = (sys.executable, "-m", "pip", "--version")) -> Check:
    """Whether pip is there. It is asked for its version alone, no registry for anything."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PIP_TIMEOUT_S
        )
        why = (
            "" if done.returncode == 0 else " ".join(done.stderr.split())[-200:] or f"exit {done.returncode}"
        )
        version = done.stdout.partition(" from ")[0].strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        why, version = f"{type(error).__name__}", ""
    if not why:
        return Check(name="pip", state="ok", found=version, values={"pip": version})
    return Check(
        name="pip",
        state="warning",
        found=why,
        means="a target such as sglang==0.5.23 can't be fetched; path:DIR works",
        cure="python -m ensurepip, or give a tree that you have: path:DIR",
    )


def extra_check(extra: str, names: tuple[str, ...] | None = None) -> Check:
    """Whether what a project's memory code imports can be found; nothing is imported. `names`: in place of its own."""
    names = IMPORTS[extra] if names is None else names
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return Check(name=f"{extra} needs", state="ok", found="all there", values={"missing": []})
    return Check(
        name=f"{extra} needs",
        state="warning",
        found=f"missing: {', '.join(missing)}",
        means=f"{extra} targets can't be driven; the reference can",
        cure=_CURES[extra],
        values={"missing": missing},
    )
