"""How a server is found, assembled, run, signalled and cleared away; with a fake wheel and a fake server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rbln_vllm_backend import autogroup, embedded_server, server_assembly
from rbln_vllm_backend.embedded_server import EmbeddedServerError, ServerProcess, find_server
from waiting import until

PYTHON = f"3.{sys.version_info.minor}"
LIBPYTHON = f"libpython{PYTHON}.so.1.0"
BACKEND = Path(embedded_server.__file__).parent.parent
CONTAINER = "or use a tritonserver on PATH, as in NVIDIA's Triton container."

# Notes what it was given and the signals it gets, ends after --signals of them, and obeys a few more options.
TRITONSERVER = f"""#!{sys.executable} -SE
import os, pathlib, signal, sys

stop_signals = {{signal.SIGINT, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
folder = pathlib.Path(os.environ["FAKE_FOLDER"])
given = dict(option.partition("=")[::2] for option in sys.argv[1:])
if "--child" in given:
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    (folder / "child").write_text(str(child))
if "--ready" in given:
    import http.server, threading
    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/v2/health/ready" else 404)
            self.end_headers()
    web = http.server.HTTPServer(("127.0.0.1", int(given["--http-port"])), Ready)
    threading.Thread(target=web.serve_forever, daemon=True).start()
(folder / "arguments").write_text("\\n".join(sys.argv[1:]))
(folder / "started.new").write_text(str(os.getpid()))
(folder / "started.new").rename(folder / "started")
for _ in range(int(given.get("--signals", 1))):
    with open(folder / "signals", "a") as notes:
        number = signal.sigwait(stop_signals)
        notes.write(signal.Signals(number).name + "\\n")
print("the last line", flush=True)
if "--die" in given:
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(int(given.get("--status", 0)))
"""


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def install(site: Path, name: str, version: str) -> None:
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def install_wheel(site: Path) -> Path:
    """The parts of nvidia-pytriton that count; returns the folder of its server."""
    install(site, "nvidia-pytriton", "9.9.0")
    root = site / "pytriton" / "tritonserver"
    executable(root / "bin" / "tritonserver", TRITONSERVER)
    executable(root / "python_backend_stubs" / PYTHON / "triton_python_backend_stub", "the stub")
    executable(root / "backends" / "python" / "libtriton_python.so", "the backend")
    executable(root / "backends" / "python" / "triton_python_backend_utils.py", "")
    (site / "nvidia_pytriton.libs").mkdir()
    return root


def use_site(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(site), *(p for p in sys.path if "site-packages" not in p)])


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a tritonserver, with NumPy 1 and a shared libpython; returns its site-packages."""
    site = tmp_path / "venv" / "site-packages"
    install(site, "numpy", "1.26.4")
    use_site(monkeypatch, site)
    monkeypatch.setattr(embedded_server, "POLL_S", 0.002)
    monkeypatch.setattr(server_assembly, "CONTAINER_SERVER", tmp_path / "opt" / "tritonserver")
    executable(tmp_path / "lib" / LIBPYTHON, "")
    monkeypatch.setattr(sysconfig, "get_config_var", {"LIBDIR": str(tmp_path / "lib"), "MULTIARCH": "m"}.get)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/existing/libraries")
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    return site


@pytest.fixture
def on_path(tmp_path: Path) -> Path:
    return executable(tmp_path / "bin" / "tritonserver", TRITONSERVER)


# Finding and assembling


def test_a_tritonserver_on_path_is_used_as_it_is(machine: Path, on_path: Path) -> None:
    install_wheel(machine)
    assert find_server() == server_assembly.Server(str(on_path), (), {})


def test_the_server_of_the_container_is_used_when_none_is_on_path(machine: Path, tmp_path: Path) -> None:
    install_wheel(machine)
    program = executable(tmp_path / "opt" / "tritonserver", TRITONSERVER)
    assert find_server() == server_assembly.Server(str(program), (), {})


def test_the_backend_directory_holds_the_wheels_backend_and_this_pythons_stub(machine: Path, tmp_path: Path) -> None:
    root = install_wheel(machine)
    server = find_server()
    assert server.program == str(root / "bin" / "tritonserver")
    (option,) = server.options
    backends = Path(option.removeprefix("--backend-directory="))
    assert backends.parent == tmp_path / "cache" / "rbln-vllm-backend"
    assert backends.name.startswith(f"tritonserver-9.9.0-py{PYTHON}-")
    assert sorted(file.name for file in (backends / "python").iterdir()) == [
        "libtriton_python.so",
        "triton_python_backend_stub",
        "triton_python_backend_utils.py",
    ]
    assert (backends / "python" / "triton_python_backend_stub").read_text() == "the stub"
    assert (backends / "python" / "libtriton_python.so").resolve().is_relative_to(machine)


def test_libraries_and_interpreter_come_before_what_was_set(machine: Path, tmp_path: Path) -> None:
    install_wheel(machine)
    assert find_server().environment == {
        "LD_LIBRARY_PATH": f"{tmp_path}/lib:{machine}/nvidia_pytriton.libs:/existing/libraries",
        "PATH": f"{Path(sys.executable).parent}:{tmp_path}/bin",
    }


def test_no_empty_entry_is_added_to_a_library_path_that_was_not_set(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_wheel(machine)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert find_server().environment["LD_LIBRARY_PATH"] == f"{tmp_path}/lib:{machine}/nvidia_pytriton.libs"


def test_the_shared_library_is_found_in_debians_multiarch_folder(machine: Path, tmp_path: Path) -> None:
    install_wheel(machine)
    (tmp_path / "lib" / "m").mkdir()
    (tmp_path / "lib" / LIBPYTHON).rename(tmp_path / "lib" / "m" / LIBPYTHON)
    assert find_server().environment["LD_LIBRARY_PATH"].startswith(f"{tmp_path}/lib/m:")


def test_a_second_start_uses_the_folder_of_the_first(machine: Path, tmp_path: Path) -> None:
    install_wheel(machine)
    first = find_server()
    (folder,) = (tmp_path / "cache" / "rbln-vllm-backend").iterdir()
    made_at = folder.stat().st_ino
    assert find_server() == first
    assert folder.stat().st_ino == made_at


def test_the_folder_of_another_environments_wheel_is_not_used(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_wheel(machine)
    stale = find_server()
    other = tmp_path / "other" / "site-packages"
    install(other, "numpy", "1.26.4")
    install_wheel(other)
    use_site(monkeypatch, other)
    fresh = find_server()
    assert fresh.options != stale.options
    backends = Path(fresh.options[0].removeprefix("--backend-directory="))
    assert (backends / "python" / "libtriton_python.so").resolve().is_relative_to(other)


def test_eight_starts_at_once_share_one_folder_and_leave_no_scratch(machine: Path, tmp_path: Path) -> None:
    install_wheel(machine)
    with ThreadPoolExecutor(8) as pool:
        servers = [future.result() for future in [pool.submit(find_server) for _ in range(8)]]
    (folder,) = (tmp_path / "cache" / "rbln-vllm-backend").iterdir()
    assert {server.options for server in servers} == {(f"--backend-directory={folder}",)}


def test_a_stub_without_its_run_bit_is_copied_and_gets_it(machine: Path) -> None:
    root = install_wheel(machine)
    (root / "python_backend_stubs" / PYTHON / "triton_python_backend_stub").chmod(0o644)
    backends = Path(find_server().options[0].removeprefix("--backend-directory="))
    stub = backends / "python" / "triton_python_backend_stub"
    assert not stub.is_symlink()
    assert stub.read_text() == "the stub"
    assert os.access(stub, os.X_OK)


# What can be missing


def fault() -> str:
    with pytest.raises(EmbeddedServerError) as caught:
        find_server()
    return str(caught.value)


def test_no_server_at_all_names_the_wheel_that_holds_one() -> None:
    assert fault() == (
        "There is no tritonserver on PATH or in /opt/tritonserver, and no wheel that holds one: "
        f"pip install --no-deps nvidia-pytriton==0.7.0 'numpy<2', {CONTAINER}"
    )


def test_a_wheel_without_its_server_is_to_be_installed_anew(machine: Path) -> None:
    root = install_wheel(machine)
    (root / "bin" / "tritonserver").unlink()
    assert fault() == (
        "nvidia-pytriton 9.9.0 is installed, but there is no server in it: "
        f"pip install --no-deps --force-reinstall nvidia-pytriton==0.7.0, {CONTAINER}"
    )


def test_a_missing_stub_names_the_pythons_that_have_one(machine: Path) -> None:
    stubs = install_wheel(machine) / "python_backend_stubs"
    (stubs / PYTHON).rename(stubs / "3.9")
    executable(stubs / "3.8" / "triton_python_backend_stub", "")
    assert fault() == (
        f"nvidia-pytriton 9.9.0 has no Python backend stub for Python {PYTHON}: use Python 3.8, 3.9, {CONTAINER}"
    )


def test_numpy_2_is_refused_with_the_version_to_take(machine: Path) -> None:
    install_wheel(machine)
    (machine / "numpy-1.26.4.dist-info" / "METADATA").unlink()
    (machine / "numpy-1.26.4.dist-info").rmdir()
    install(machine, "numpy", "2.3.1")
    remedy = "pip install 'numpy<2'" if sys.version_info < (3, 13) else "use Python 3.12 with 'numpy<2'"
    assert fault() == (
        "The embedded Triton server was built before NumPy 2 and misreads every tensor with NumPy 2.3.1: "
        f"{remedy}, {CONTAINER}"
    )


def test_numpy_2_does_not_matter_to_a_tritonserver_on_path(machine: Path, on_path: Path) -> None:
    (machine / "numpy-1.26.4.dist-info").rename(machine / "numpy-2.3.1.dist-info")
    assert find_server().program == str(on_path)


def test_a_python_without_its_shared_library_names_the_package(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_wheel(machine)
    (tmp_path / "lib" / LIBPYTHON).unlink()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    assert fault() == (
        f"The Python at {sys.executable} has no shared library {LIBPYTHON}: on Debian and Ubuntu install the "
        f"package libpython{PYTHON}, with pyenv build it anew with PYTHON_CONFIGURE_OPTS=--enable-shared, "
        f"{CONTAINER}"
    )


def test_a_cache_that_cannot_be_written_says_which_variable_to_set(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_wheel(machine)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fault() == (
        f"The embedded server can't be assembled in {tmp_path}/file/rbln-vllm-backend (Not a directory): "
        "set XDG_CACHE_HOME to a folder that can be written to."
    )


# Running


@pytest.fixture
def start(tmp_path: Path, on_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts the scripted server in this process, and waits until it has noted its start."""
    with contextlib.ExitStack() as stack:

        def started(*options: str, **named: object) -> ServerProcess:
            (tmp_path / "started").unlink(missing_ok=True)
            server = stack.enter_context(ServerProcess(tmp_path / "models", options, **named))  # type: ignore[arg-type]
            until((tmp_path / "started").exists)
            return server

        yield started


def arguments(tmp_path: Path) -> list[str]:
    return (tmp_path / "arguments").read_text().splitlines()


def test_options_go_to_tritonserver_as_they_are_and_come_last(
    start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    start("--log-verbose=1", "--model-control-mode", "explicit", http_port=free_port())
    first, port, prefix, *rest = arguments(tmp_path)
    assert first == f"--model-repository={tmp_path}/models"
    assert port.startswith("--http-port=")
    assert prefix.startswith(f"--backend-config=python,shm-region-prefix-name=rbln_vllm_{os.getpid()}_")
    assert rest == ["--log-verbose=1", "--model-control-mode", "explicit"]


def test_two_servers_of_one_process_name_their_shared_memory_apart(
    start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    start()
    first = arguments(tmp_path)
    start()
    assert arguments(tmp_path)[:-1] == first[:-1]
    assert arguments(tmp_path)[-1] != first[-1]


def test_the_users_own_prefix_and_backend_directory_are_kept(
    machine: Path, start: Callable[..., ServerProcess], tmp_path: Path, on_path: Path
) -> None:
    # A shell script, since the assembled server's environment holds a libpython that is none.
    script = '#!/bin/sh\nprintf "%s\\n" "$@" >"$FAKE_FOLDER/arguments"; : >"$FAKE_FOLDER/started"\n'
    executable(install_wheel(machine) / "bin" / "tritonserver", script)
    on_path.unlink()
    own = ["--backend-config", "python,shm-region-prefix-name=mine", "--backend-directory", "/mine"]
    start(*own)
    assert arguments(tmp_path) == [f"--model-repository={tmp_path}/models", *own]


def test_stop_ends_it_in_order_and_leaves_no_zombie(start: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = start(log_path=tmp_path / "log")
    pid = server.pid
    assert server.stop() == 0
    assert (tmp_path / "signals").read_text() == "SIGTERM\n"
    assert (tmp_path / "log").read_text() == "the last line\n"
    assert not Path(f"/proc/{pid}").exists()
    assert server.stop() == 0


def test_a_server_that_does_not_stop_is_killed(start: Callable[..., ServerProcess]) -> None:
    assert start("--signals=9").stop(timeout_s=0) == 128 + signal.SIGKILL


def test_what_a_dead_server_leaves_running_is_killed(
    start: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_server, "LEFTOVERS_TIMEOUT_S", 0.1)
    server = start("--child", "--die")
    child = int((tmp_path / "child").read_text())
    assert runs(child)
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 128 + signal.SIGKILL
    until(lambda: not runs(child))


def test_shared_memory_that_a_killed_server_leaves_is_removed(
    start: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_server, "SHARED_MEMORY", tmp_path)
    server = start()
    prefix = arguments(tmp_path)[-1].rpartition("=")[2]
    (tmp_path / f"{prefix}region").write_text("")
    (tmp_path / "rbln_vllm_1_of_another").write_text("")
    server.kill()
    assert server.wait() == 128 + signal.SIGKILL
    assert [file.name for file in tmp_path.glob("rbln_vllm_*")] == ["rbln_vllm_1_of_another"]


def test_ready_is_asked_of_the_given_port_and_never_through_a_proxy(
    start: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    start("--ready", http_port=free_port()).wait_ready(deadline_s=10)


def test_a_server_that_ends_before_it_is_ready_is_noticed_at_once(
    start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = start("--status=7", http_port=free_port(), log_path=tmp_path / "log")
    server.send_signal(signal.SIGTERM)
    with pytest.raises(EmbeddedServerError) as caught:
        server.wait_ready(deadline_s=60)
    assert str(caught.value) == f"tritonserver ended with status 7: see its log, {tmp_path}/log."


def test_a_server_that_is_not_ready_in_time_is_an_error(start: Callable[..., ServerProcess]) -> None:
    server = start(http_port=free_port())
    with pytest.raises(EmbeddedServerError) as caught:
        server.wait_ready(deadline_s=0)
    assert str(caught.value) == "tritonserver was not ready after 0 s: its output says why."


def test_a_port_in_use_is_an_error_before_anything_starts(tmp_path: Path, on_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError) as caught:
            ServerProcess(tmp_path, http_port=port).start()
    assert str(caught.value) == f"Port {port} can't be used: Address already in use."
    assert not (tmp_path / "started").exists()


def test_a_program_that_cannot_be_run_is_an_error(tmp_path: Path, on_path: Path) -> None:
    on_path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(EmbeddedServerError) as caught:
        ServerProcess(tmp_path).start()
    assert str(caught.value) == f"{on_path} can't be run: No such file or directory."


def test_only_a_session_of_the_servers_own_gives_way_to_others(tmp_path: Path, on_path: Path) -> None:
    ours = session_group(os.getpid())
    for own_session in (True, False):
        server = ServerProcess(tmp_path, own_session=own_session)
        server.start()
        try:
            group = session_group(server.pid or 0)
        finally:
            server.kill()
        if not own_session:
            assert group == ours
        elif new_sessions_have_groups():
            assert group.endswith(f" nice {autogroup.NICE}\n")
    assert session_group(os.getpid()) == ours


def session_group(pid: int) -> str:
    """`/autogroup-7 nice 0`; nothing for the session that the system began with, or where the kernel has no groups."""
    file = autogroup.file_of(pid)
    return file.read_text() if file.exists() else ""


def new_sessions_have_groups() -> bool:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        return bool(session_group(child.pid))
    finally:
        child.communicate(b"\n")


# The command: signals reach it in a process of its own


@pytest.fixture
def serving(tmp_path: Path, on_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`serve` in a process group of its own, as a shell starts it, with the scripted server started."""
    program = (
        f"import sys; sys.path.insert(0, {str(BACKEND)!r})\n"
        "from rbln_vllm_backend.embedded_server import serve\n"
        "sys.exit(serve('models', sys.argv[1:]))"
    )
    with contextlib.ExitStack() as stack:

        def started(*options: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-SEc", program, *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            until((tmp_path / "started").exists)
            return process

        yield started


def signals(tmp_path: Path) -> list[str]:
    notes = tmp_path / "signals"
    return notes.read_text().split() if notes.exists() else []


def test_a_terminals_ctrl_c_reaches_tritonserver_once(
    serving: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = serving()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert signals(tmp_path) == ["SIGINT"]
    assert output == "the last line\n"


def test_sigterm_is_forwarded_and_the_exit_status_comes_back(
    serving: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = serving("--status=3")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 3
    assert signals(tmp_path) == ["SIGTERM"]


def test_the_second_signal_is_forwarded_and_the_third_kills_the_whole_group(
    serving: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = serving("--signals=9", "--child")
    for count in (1, 2):
        process.send_signal(signal.SIGINT)
        until(lambda count=count: len(signals(tmp_path)) == count)  # type: ignore[misc]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 128 + signal.SIGKILL
    assert signals(tmp_path) == ["SIGINT", "SIGINT"]
    until(lambda: not runs(int((tmp_path / "child").read_text())))


def test_tritonserver_is_told_to_stop_when_we_are_killed(
    serving: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    serving().kill()
    until(lambda: not runs(int((tmp_path / "started").read_text())))
    assert signals(tmp_path) == ["SIGTERM"]
