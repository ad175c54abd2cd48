"""More ranks than any machine's cores: they all meet, finish and are counted, with the digest of one process."""

from __future__ import annotations

import json

import pytest

from stress.cli import main

pytestmark = [pytest.mark.multi, pytest.mark.slow]
RANKS = 64


def test_all_of_many_ranks_finish_and_decide_what_they_decide_inline(capsys, tmp_path) -> None:
    documents = {}
    for launcher in ("local", "inline"):
        command = ["run", "smoke", "--arm", "patched", "--launcher", launcher, "--json"]
        for change in (f"layout.tp_size={RANKS}", f"layout.dp_size={RANKS}", "check.require=[]"):
            command += ["--set", change]
        assert main([*command, "--out", str(tmp_path / launcher)]) == 0
        documents[launcher] = json.loads(capsys.readouterr().out)
    local, inline = documents["local"], documents["inline"]
    assert local["digest"] == inline["digest"]
    told = local["arms"]["patched"]["ranks"]
    assert [rank["rank"] for rank in told] == list(range(RANKS))
    assert {rank["status"] for rank in told} == {"finished"}
    assert len({rank["pid"] for rank in told}) == RANKS
    totals = local["arms"]["patched"]["totals"]
    assert totals["requests_finished"] + totals["requests_cancelled"] == 500
