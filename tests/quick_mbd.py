"""`mbd` and `python -m` without their start-up: a server that has imported what they import and forks for each.

Most of a short command's time is Python importing torch. The server imports it once; `client(socket)` is the text of an
executable that hands over its arguments, folder, environment and open files, and ends with the exit code of the fork.
"""

import atexit
import gc
import inspect
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path

import pytest

_HEAVY = ("torch._dynamo", "scipy.stats", "sklearn.linear_model", "dvclive", "kfp.compiler", "kfp.kubernetes")
_MODULES = "run-module"
_UNUSED = "mbd.features.media"
_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
server.shutdown(socket.SHUT_WR)
sys.exit(int(server.recv(8) or b"1"))
"""


@contextmanager
def quick_mbd(folder: Path) -> Iterator[Path]:
    """Yield a folder to be taken for a virtual environment, whose `mbd` and `run-module -m` need no start-up."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has to be
        path = Path(short) / "socket"
        (folder / "bin").mkdir(parents=True)
        for executable in (folder / "bin" / "mbd", folder / "bin" / _MODULES):
            executable.write_text(client(path))
            executable.chmod(0o755)
        (folder / ".installed").touch()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.quick_mbd", str(path)],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            while not path.exists():
                assert server.poll() is None, "the server of commands has ended"
                time.sleep(0.05)
            yield folder
        finally:
            server.terminate()
            server.wait()


@contextmanager
def quick_tasks(folder: Path) -> Iterator[None]:
    """Let kfp's local runner start each task as a fork."""
    from kfp.local import subprocess_task_handler

    with quick_mbd(folder) as venv, pytest.MonkeyPatch.context() as patch:
        python = str(venv / "bin" / _MODULES)
        patch.setattr(subprocess_task_handler, "environment", lambda **_: nullcontext(python))
        yield


def client(path: Path) -> str:
    """Return the executable that has the server at `path` run a command."""
    return _CLIENT.format(python=sys.executable, path=str(path))


def serve(path: Path) -> None:
    """Run commands until the process that started this one has ended."""
    import mbd

    ours = (found.name for found in pkgutil.walk_packages(mbd.__path__, "mbd."))
    for module in [*_HEAVY, *(name for name in ours if not name.startswith(_UNUSED))]:
        import_module(module)
    inspect.getmodule(sys._getframe())  # looks at the file of every module, and remembers them all
    gc.freeze()
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # only their clients wait for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        Path(f"{path}.new").rename(path)
        listener.settimeout(1)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                if os.fork() == 0:
                    _answer(connection)
                connection.close()


def _answer(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as request:
        sys.argv, folder, environment = json.load(request)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it was found in another environment
    os.chdir(folder)
    code = _run()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())
    os._exit(code)


def _run() -> int:
    from mbd.cli import main

    try:
        if Path(sys.argv[0]).name == _MODULES:
            sys.argv = sys.argv[2:]  # behind `-m`
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
