"""Which NPUs each Triton instance gets: ``serving.npu_groups`` = "0,1;2,3", one group for each instance.

Every instance is a process with an engine of its own. Its group is handed to the engine as RBLN_VISIBLE_DEVICES, from
which vllm-rbln gives each of its ranks ``num_devices_per_local_rank`` NPUs (``RBLNWorker._init_device_env``, 0.12.0).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.values import Integer

Groups = tuple[tuple[int, ...], ...]

OPTION = "serving.npu_groups"
VARIABLE = "RBLN_VISIBLE_DEVICES"
_LAST_NUMBER = re.compile(r"[0-9]+(?!.*[0-9])")
# What multiplies to the number of NPUs of one engine, as engine flags.
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_PER_RANK = ("rbln_num_devices_per_local_rank", "additional_config.num_devices_per_local_rank")


@dataclass(frozen=True)
class GroupsRule:
    """The option's text: numbers of NPUs, commas between those of a group, semicolons between groups."""

    words: str = 'groups of NPU numbers, no number twice, such as "0,1;2,3"'

    def typed(self, value: object) -> Groups:
        raise ValueError

    def spelled(self, text: str) -> Groups:
        number = Integer(minimum=0)
        groups = tuple(tuple(map(number.spelled, group.split(","))) for group in text.split(";"))
        numbers = [one for group in groups for one in group]
        if len(set(numbers)) != len(numbers):
            raise ValueError
        return groups


def instance_groups_of(model_config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """``instance_group`` of a model configuration in Triton's JSON form."""
    return list(model_config.get("instance_group") or [])


def faults(
    groups: Groups | None, flags: Mapping[str, str], instance_groups: Sequence[Mapping[str, Any]], on_rbln: bool
) -> list[Fault]:
    """What is wrong between the groups, the instances and the engine's size."""
    found = [
        Fault("instance_group", "the engine finds its devices itself, none is NVIDIA's", "Use KIND_CPU", kind)
        for kind in dict.fromkeys(str(group.get("kind")) for group in instance_groups)
        if kind == "KIND_GPU"
    ]
    count = sum(int(group.get("count") or 1) for group in instance_groups) or 1
    if groups is None:
        return found + ([_shared_devices(count)] if count > 1 else [])
    if not on_rbln:
        return [*found, Fault(OPTION, "the engine does not run on NPUs here", "Remove it", _text(groups))]
    if len(instance_groups) > 1:
        rule = "with NPU groups an instance is known by its number, and several entries number theirs each from 0"
        found.append(Fault("instance_group", rule, "Use one entry with a count"))
    elif len(groups) != count:
        rule = f"there are {len(groups)} groups for {count} Triton instances"
        found.append(Fault(OPTION, rule, f"Set the count of instance_group to {len(groups)}", _text(groups)))
    return found + list(_size_faults(groups, flags))


def _shared_devices(count: int) -> Fault:
    rule = "each instance is an engine of its own, and two engines can't share a device"
    return Fault("instance_group", rule, f"Give each its NPUs with {OPTION}, or set the count to 1", f"count {count}")


def _size_faults(groups: Groups, flags: Mapping[str, str]) -> Iterator[Fault]:
    factors = _factors(flags)
    needed = math.prod(factors.values())
    reason = " × ".join(f"{name} {value}" for name, value in factors.items() if value > 1)
    for group in groups:
        if len(group) != needed:
            rule = f"the group {_text((group,))} has {len(group)} NPUs, and an engine needs {needed}"
            rule += f" ({reason})" if reason else ""
            yield Fault(OPTION, rule, "Make the groups as large as the engine, or change its size", _text(groups))
            return


def ranks(flags: Mapping[str, str]) -> int:
    """How many worker processes an engine has: the product of its parallel sizes."""
    return math.prod(_number(flags.get(name)) for name in _PARALLEL)


def _factors(flags: Mapping[str, str]) -> dict[str, int]:
    """The factors of an engine's number of NPUs; what isn't a number is left to the parser, which reports it."""
    factors = {"num_devices_per_local_rank": devices_per_rank(flags)}
    factors.update((name, _number(flags.get(name))) for name in _PARALLEL)
    return factors


def devices_per_rank(flags: Mapping[str, str]) -> int:
    """How many NPUs each worker process of an engine has, in any of the three forms of the option."""
    for name in _PER_RANK:
        if name in flags:
            return _number(flags[name])
    try:
        document = strict_json.decode(flags.get("additional_config", "{}"))
        return _number(str(document.get("num_devices_per_local_rank", 1)))
    except (ValueError, AttributeError):
        return 1


def _number(text: str | None) -> int:
    try:
        return Integer(minimum=1).spelled(text or "1")
    except ValueError:
        return 1


def clashes(groups: Groups | None, environment: Mapping[str, str]) -> list[Fault]:
    """The variable that the groups set, given by hand as well."""
    if groups is None or VARIABLE not in environment:
        return []
    return [Fault(f"env.{VARIABLE}", f"{OPTION} sets this variable", "Remove one of the two", environment[VARIABLE])]


def variables(groups: Groups | None, instance_name: str) -> dict[str, str]:
    """The environment of one instance; its number is the last one in ``model_instance_name``, such as ``llm_0_1``.

    Triton numbers the instances of a group of several only: the name of a single one is that of its ``instance_group``.
    """
    if groups is None:
        return {}
    if len(groups) == 1:
        return {VARIABLE: _text(groups)}
    number = _LAST_NUMBER.search(instance_name)
    return {VARIABLE: _text((groups[int(number.group()) if number else 0],))}


def _text(groups: Groups) -> str:
    return ";".join(",".join(map(str, group)) for group in groups)
