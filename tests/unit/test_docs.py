"""The tables of the documentation, held against the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rbln_vllm_backend import sampling, speculation, structured_outputs
from rbln_vllm_backend.model_folder import ModelFolder
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.unary_options import UnaryOptions
from rbln_vllm_backend.wire import INPUTS, OUTPUTS

ROOT = Path(__file__).parents[2]
PARAMETERS = (ROOT / "docs" / "parameters.md").read_text()
PROTOCOL = (ROOT / "docs" / "client-protocol.md").read_text()


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_column(table: str) -> list[str]:
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def in_words(default: object, unset: str) -> str:
    if default is None:
        return unset
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    return f"`{str(default).lower().removesuffix('.0')}`"


@pytest.mark.parametrize(
    ("title", "kind"), [("Options of this backend", ServingOptions), ("The unary model", UnaryOptions)]
)
def test_every_serving_option_is_documented_with_its_default(title: str, kind: type) -> None:
    rows = dict(re.findall(r"^\| `serving\.(\w+)` \| ([^|]+) \|", section(PARAMETERS, title), re.M))
    options = kind()
    shown = {item.name: in_words(getattr(options, item.name), item.metadata["unset"]) for item in fields(options)}
    assert rows == shown


def test_every_sampling_parameter_is_documented_with_its_rule_and_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section(PROTOCOL, "Sampling parameters"), re.M)
    assert {name: (rule, default) for name, rule, default in rows} == {
        name: (parameter.rule.words, parameter.default) for name, parameter in sampling.PARAMETERS.items()
    }


def test_every_field_that_is_not_a_clients_is_documented_with_the_reason() -> None:
    rest = section(PROTOCOL, "Sampling parameters").split("each with its reason:\n\n")[1].split("\n\n")[0]
    listed = {
        name: reason
        for line in rest.splitlines()
        for names, reason in [line.removeprefix("- ").split(": ", 1)]
        for name in re.findall(r"`(\w+)`", names)
    }
    assert listed == sampling.NOT_OURS


def test_every_constraint_is_documented() -> None:
    table = PROTOCOL.split("### Structured output\n")[1].split("\nand nothing else")[0]
    assert first_column(table) == list(structured_outputs.CONSTRAINTS)


def test_every_tensor_is_documented() -> None:
    assert sorted(first_column(section(PROTOCOL, "Inputs"))) == sorted(tensor.name for tensor in INPUTS)
    assert sorted(first_column(section(PROTOCOL, "Outputs"))) == sorted(tensor.name for tensor in OUTPUTS)


def test_every_documented_method_is_in_the_table() -> None:
    assert first_column(section(PARAMETERS, "Speculation")) == list(speculation.DOCUMENTED)


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_files_for_npus_in_the_documents_are_valid(tmp_path: Path) -> None:
    whole, placement = re.findall(r"```protobuf\n(.*?)```", (ROOT / "docs" / "rbln.md").read_text(), re.S)
    given = whole.replace("/models/Llama-3.1-8B-Instruct", "org/name")
    (tmp_path / "config.pbtxt").write_text(given + placement)
    settings = ModelFolder(tmp_path).check()
    assert settings.speculation is not None
    assert settings.serving.npu_groups == ((0, 1), (2, 3))
    assert settings.notes == ()
