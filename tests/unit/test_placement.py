"""Placement on a cluster: what is asked for, who becomes which rank, which devices are seen, which cluster."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from stress.launch import ray_cluster
from stress.launch.contract import LaunchError
from stress.launch.device import assigned_device, torch_device
from stress.launch.placement import Place, bundle, describe_shortage, rank_order, rocm_visibility, strategy


def test_ranks_ask_for_a_gpu_each_where_there_are_any() -> None:
    assert bundle(8, "auto", [{"CPU": 64, "GPU": 8}]) == {"CPU": 1, "GPU": 1}
    assert bundle(8, "cpu", [{"CPU": 64, "GPU": 8}]) == {"CPU": 1}
    assert bundle(8, "auto", [{"CPU": 2}]) == {"CPU": 0.25}
    assert bundle(3, "auto", [{"CPU": 2}]) == {"CPU": 0.666}


def test_a_share_of_the_cores_fits_into_nodes_and_not_only_into_their_sum() -> None:
    assert bundle(8, "auto", [{"CPU": 4}, {"CPU": 4}]) == {"CPU": 1}
    assert bundle(8, "auto", [{"CPU": 3}, {"CPU": 2}]) == {"CPU": 0.6}  # 5 + 3; with 5 / 8 it would be 4 + 3
    few_cores = [{"CPU": 4, "GPU": 8}, {"CPU": 64}]
    assert bundle(8, "auto", few_cores) == {"CPU": 0.5, "GPU": 1}


@pytest.mark.parametrize(
    ("device", "nodes", "there"),
    [
        ("auto", [{"CPU": 64, "GPU": 4}], "the cluster has 4;"),
        ("cuda", [{"CPU": 64}], "the cluster has 0;"),
        ("cuda", [{"CPU": 64, "GPU": 4}, {"CPU": 64}, {"CPU": 8, "GPU": 2}], "the cluster has 6 (4 + 2);"),
        ("cpu", [{}], "the cluster has 0 CPUs;"),
    ],
)
def test_what_can_never_be_placed_is_refused_in_one_line(device: str, nodes: list, there: str) -> None:
    with pytest.raises(LaunchError) as refusal:
        bundle(8, device, nodes)
    assert "\n" not in str(refusal.value)
    assert "8 ranks" in str(refusal.value)
    assert there in str(refusal.value)


def test_one_node_is_taken_where_it_is_large_enough() -> None:
    each = {"CPU": 1.0, "GPU": 1.0}
    assert strategy("auto", 8, each, [{"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 8}]) == "STRICT_PACK"
    assert strategy("auto", 16, each, [{"CPU": 8, "GPU": 8}] * 2) == "PACK"
    assert strategy("auto", 3, {"CPU": 0.666}, [{"CPU": 2}]) == "STRICT_PACK"
    assert strategy("pack", 3, {"CPU": 0.666}, [{"CPU": 2}]) == "PACK"
    assert strategy("spread", 3, {"CPU": 0.666}, [{"CPU": 2}]) == "SPREAD"


def test_a_shortage_says_what_is_there() -> None:
    each, nodes = {"CPU": 1, "GPU": 1}, [{"CPU": 32, "GPU": 8}, {"CPU": 32, "GPU": 8}]
    free = {"CPU": 60, "GPU": 9}
    line = describe_shortage(8, each, "STRICT_PACK", nodes, free, 120)
    assert "no place for 8 ranks on one node within 120 s" in line
    assert "8 GPU wanted, 16 (8 + 8) there, 9 free" in line
    assert "--set layout.placement=pack" in line
    assert "placement" not in describe_shortage(8, each, "PACK", nodes, free, 120)
    assert "placement" not in describe_shortage(8, each, "STRICT_PACK", nodes, {"CPU": 60, "GPU": 7}, 120)
    alone = describe_shortage(8, each, "STRICT_PACK", nodes[:1], {"CPU": 32, "GPU": 3}, 120)
    assert "8 GPU wanted, 8 there, 3 free" in alone
    assert "placement" not in alone


def place(gpu_id: str, node: str = "n1") -> Place:
    return Place(node_id=node, node_ip="127.0.0.1", gpu_id=gpu_id, pid=1)


def test_ranks_follow_node_and_gpu() -> None:
    assert rank_order([place("2"), place("10"), place("0")]) == [2, 0, 1]
    assert rank_order([place("1", "b"), place("0", "a"), place("0", "b"), place("1", "a")]) == [2, 0, 1, 3]
    assert rank_order([place(""), place(""), place("")]) == [0, 1, 2]


def test_a_lent_gpu_is_found_whether_or_not_the_others_are_hidden() -> None:
    assert assigned_device("5", "5", 1) == "cuda:0"
    assert assigned_device("5", None, 8) == "cuda:5"
    assert assigned_device("5", "4,5,6", 3) == "cuda:1"
    assert torch_device("cpu", 3) == "cpu"
    assert torch_device("cuda:2", 3) == "cuda:2"


def test_rocr_is_never_left_alone() -> None:
    assert rocm_visibility({"ROCR_VISIBLE_DEVICES": "2,5"}) == {"HIP_VISIBLE_DEVICES": "0,1"}
    assert rocm_visibility({"ROCR_VISIBLE_DEVICES": "2,5", "HIP_VISIBLE_DEVICES": "1"}) == {}
    assert rocm_visibility({}) == {}


def test_only_a_job_or_an_address_joins_a_cluster() -> None:
    assert ray_cluster.cluster_address(None, {}) == "local"
    assert ray_cluster.cluster_address(None, {"RAY_ADDRESS": "http://127.0.0.1:8265"}) == "local"
    assert ray_cluster.cluster_address(None, {"RAY_ADDRESS": "10.0.0.1:6379"}) == "10.0.0.1:6379"
    in_job = {ray_cluster.JOB_CONFIG: "{}", "RAY_ADDRESS": "10.0.0.1:6379"}
    assert ray_cluster.cluster_address(None, in_job) == "auto"
    assert ray_cluster.cluster_address("auto", {}) == "auto"


def test_a_job_keeps_what_it_set_itself() -> None:
    job = {"runtime_env": {"working_dir": "x", "env_vars": {"OMP_NUM_THREADS": "4"}}}
    told = ray_cluster.job_environment({ray_cluster.JOB_CONFIG: json.dumps(job)}, "/code")
    assert told == {"MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    assert ray_cluster.job_environment({}, "/code")["PYTHONPATH"] == "/code"


def test_actors_import_what_the_driver_can(tmp_path: Path) -> None:
    path = ray_cluster.import_path([str(tmp_path), *sys.path, str(tmp_path)]).split(os.pathsep)
    assert path[0] == str(tmp_path.resolve())
    assert path.count(str(tmp_path.resolve())) == 1
    assert not any("site-packages" in entry for entry in path)
