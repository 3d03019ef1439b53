"""NPU groups: which instance gets which devices, and what doesn't fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rbln_vllm_backend import config, npu_groups
from rbln_vllm_backend.errors import ConfigError

TWO = [{"name": "llm_0", "kind": "KIND_CPU", "count": 2, "gpus": []}]


def read(groups: str | None, instances: list[dict[str, Any]], **more: str) -> None:
    options = {"serving.npu_groups": groups} if groups is not None else {}
    config.read({"model": "org/name", "serving.platform": "rbln", **options, **more}, Path("/"), instances)


def refusal(groups: str | None, instances: list[dict[str, Any]], **more: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(groups, instances, **more)
    return [str(fault) for fault in caught.value.faults]


def test_each_instance_gets_the_group_of_its_number() -> None:
    groups = npu_groups.GroupsRule().spelled("0,1; 2,3")
    assert [npu_groups.variables(groups, name) for name in ("llm_0_0", "llm_0_1", "model_7_0_1")] == [
        {"RBLN_VISIBLE_DEVICES": "0,1"},
        {"RBLN_VISIBLE_DEVICES": "2,3"},
        {"RBLN_VISIBLE_DEVICES": "2,3"},
    ]
    assert npu_groups.variables(None, "llm_0_1") == {}
    assert npu_groups.variables(((2, 3),), "rebel7") == {npu_groups.VARIABLE: "2,3"}


@pytest.mark.parametrize("text", ["", "0,1;", "0,1;1,2", "a", "-1", "0 1", "0;0"])
def test_what_is_no_list_of_groups_is_refused(text: str) -> None:
    assert refusal(text, TWO) == [
        f'serving.npu_groups = {text!r}: must be groups of NPU numbers, no number twice, such as "0,1;2,3". '
        "Correct the value or remove the parameter."
    ]


@pytest.mark.parametrize(
    ("groups", "more"),
    [
        ("0;1", {}),
        ("0,1;2,3", {"rbln_num_devices_per_local_rank": "2"}),
        ("0,1;2,3", {"tensor_parallel_size": "2"}),
        ("0,1,2,3;4,5,6,7", {"rbln_num_devices_per_local_rank": "2", "pipeline_parallel_size": "2"}),
        ("0,1;2,3", {"additional_config.num_devices_per_local_rank": "2"}),
        ("0,1;2,3", {"additional_config": '{"num_devices_per_local_rank": 2}'}),
    ],
)
def test_groups_of_the_engines_size_pass(groups: str, more: dict[str, str]) -> None:
    read(groups, TWO, **more)


def test_a_group_of_another_size_is_refused_with_the_sum() -> None:
    assert refusal("0,1;2,3", TWO, tensor_parallel_size="2", rbln_num_devices_per_local_rank="2") == [
        "serving.npu_groups = '0,1;2,3': the group 0,1 has 2 NPUs, and an engine needs 4 (num_devices_per_local_rank 2 "
        "× tensor_parallel_size 2). Make the groups as large as the engine, or change its size."
    ]
    assert refusal("0,1;2,3", TWO) == [
        "serving.npu_groups = '0,1;2,3': the group 0,1 has 2 NPUs, and an engine needs 1. Make the groups as large as "
        "the engine, or change its size."
    ]


def test_two_engines_never_share_a_device() -> None:
    assert refusal(None, TWO) == [
        "instance_group = 'count 2': each instance is an engine of its own, and two engines can't share a device. "
        "Give each its NPUs with serving.npu_groups, or set the count to 1."
    ]


def test_as_many_groups_as_instances() -> None:
    assert refusal("0;1;2", TWO) == [
        "serving.npu_groups = '0;1;2': there are 3 groups for 2 Triton instances. Set the count of instance_group to 3."
    ]


def test_several_entries_number_their_instances_alike() -> None:
    assert refusal("0;1", [{**TWO[0], "count": 1}, {**TWO[0], "count": 1}]) == [
        "instance_group: with NPU groups an instance is known by its number, and several entries number theirs each "
        "from 0. Use one entry with a count."
    ]


def test_a_gpu_is_refused() -> None:
    assert refusal(None, [{"kind": "KIND_GPU", "count": 1, "gpus": [0]}]) == [
        "instance_group = 'KIND_GPU': the engine finds its devices itself, none is NVIDIA's. Use KIND_CPU."
    ]


def test_groups_and_the_variable_that_they_set_are_not_mixed() -> None:
    assert refusal("0;1", TWO, **{"env.RBLN_VISIBLE_DEVICES": "3"}) == [
        "env.RBLN_VISIBLE_DEVICES = '3': serving.npu_groups sets this variable. Remove one of the two."
    ]


def test_a_cpu_has_no_npus() -> None:
    assert refusal("0;1", TWO, **{"serving.platform": "cpu"}) == [
        "serving.npu_groups = '0;1': the engine does not run on NPUs here. Remove it."
    ]
