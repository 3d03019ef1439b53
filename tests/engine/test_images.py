"""Images on their way to vLLM's renderer, which is played here: no multimodal checkpoint is at hand."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from rbln_vllm_backend.engine import Illustrated
from rbln_vllm_backend.errors import InvalidRequest, Unsupported
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.vllm_prompts import PromptRenderer


class PlayedRenderer:
    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []

    async def render_cmpl_async(self, prompts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.prompts += prompts
        return [{"prompt_token_ids": [1, 2, 3]}]


def renderer(multimodal: bool) -> tuple[PromptRenderer, PlayedRenderer]:
    played = PlayedRenderer()
    model = SimpleNamespace(max_model_len=16, get_vocab_size=lambda: 8, is_multimodal_model=multimodal)
    return PromptRenderer(SimpleNamespace(renderer=played, model_config=model), ServingOptions()), played


def png(width: int, height: int, mode: str = "RGBA") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, "PNG")
    return file.getvalue()


def test_images_reach_the_renderer_as_rgb_pictures() -> None:
    made, played = renderer(multimodal=True)
    asyncio.run(made.render(Illustrated("<image>", [png(3, 2), png(5, 4, "L")])))
    (prompt,) = played.prompts
    assert prompt["prompt"] == "<image>"
    assert [(image.size, image.mode) for image in prompt["multi_modal_data"]["image"]] == [
        ((3, 2), "RGB"),
        ((5, 4), "RGB"),
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no image", "image[0]: not an image that can be read ("),
        (png(3, 2)[:40], "image[0]: not an image that can be read ("),
        (png(10_000, 7_000, "1"), "image[0]: 10000 x 7000 pixels; a request's images may have 64000000 pix"),
    ],
)
def test_what_is_no_picture_is_refused(data: bytes, words: str) -> None:
    made, _ = renderer(multimodal=True)
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(made.render(Illustrated("<image>", [data])))
    assert str(caught.value).startswith(words)


def test_pictures_are_counted_together() -> None:
    made, _ = renderer(multimodal=True)
    small_as_files = [png(4_000, 4_000, "1")] * 5
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(made.render(Illustrated("<image>", small_as_files)))
    assert str(caught.value) == "image[4]: 4000 x 4000 pixels; a request's images may have 64000000 pixels together."


def test_a_checkpoint_of_text_takes_no_images() -> None:
    made, _ = renderer(multimodal=False)
    with pytest.raises(Unsupported) as caught:
        asyncio.run(made.render(Illustrated("<image>", [png(3, 2)])))
    assert str(caught.value) == "image: this checkpoint takes text only."
