"""`mbd`, `dvc` and `python` without their start-up: a server that has imported what they import and forks for each.

Most of a short command's time is Python importing torch. The server imports it once in a run of the tests; each program
hands over its arguments, folder, environment and open files, and ends as the fork ends.
"""

import atexit
import gc
import inspect
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

_PROGRAMS = ("mbd", "dvc", "python")
_HEAVY = (
    *("torch._dynamo", "scipy.stats", "sklearn.linear_model", "matplotlib.pyplot", "kfp.compiler", "kfp.kubernetes"),
    *("dvclive", "dvc.cli.parser", "dvc.repo", "dvc.scm", "dvc.cachemgr", "dvc.data_cloud", "dvc.render"),
    *("networkx", "rich.text", "dulwich.index", "pygit2"),
)
_UNUSED = ("mbd.features.media", "mbd.model.examples.two_towers")
_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
server.shutdown(socket.SHUT_WR)
code = int(server.recv(8))
sys.exit(code if code >= 0 else os.kill(os.getpid(), -code))
"""


def start(folder: Path, until: int) -> None:
    """Make `folder` look like a virtual environment with these programs, which work until the process `until` ends."""
    path = Path(tempfile.mkdtemp()) / "socket"  # the path of a socket has to be short
    (folder / "bin").mkdir()
    for program in _PROGRAMS:
        (folder / "bin" / program).write_text(_CLIENT.format(python=sys.executable, path=str(path)))
        (folder / "bin" / program).chmod(0o755)
    for stamp in (".installed", ".installed-all"):
        (folder / stamp).touch()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.quick_mbd", str(path), str(until)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while not path.exists():
        assert server.poll() is None, "the server of commands has ended"
        time.sleep(0.05)
    server.returncode = 0  # nothing waits for it


@contextmanager
def quick_tasks(quick: Path) -> Iterator[None]:
    """Let kfp's local runner start each task as a fork."""
    from kfp.local import subprocess_task_handler

    with pytest.MonkeyPatch.context() as patch:
        python = str(quick / "bin" / "python")
        patch.setattr(subprocess_task_handler, "environment", lambda **_: nullcontext(python))
        yield


def serve(path: Path, until: int) -> None:
    """Run commands until the process `until` has ended."""
    import mbd

    ours = (found.name for found in pkgutil.walk_packages(mbd.__path__, "mbd."))
    with warnings.catch_warnings(action="error"):
        for module in [*_HEAVY, *(name for name in ours if not name.startswith(_UNUSED))]:
            import_module(module)
    _read_yaml_once()
    inspect.getmodule(sys._getframe())  # looks at the file of every module, and remembers them all
    gc.freeze()
    os.fsync = lambda fd: None  # as in the tests themselves
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # only their clients wait for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        Path(f"{path}.new").rename(path)
        listener.settimeout(1)
        while _lives(until):
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                if os.fork() == 0:
                    _answer(connection)
                connection.close()
    shutil.rmtree(path.parent)


def _read_yaml_once() -> None:
    """Let DVC, which reads the parameters seven times for each stage, parse the same text once."""
    from dvc.utils.serialize import _yaml

    parse = cache(_yaml.parse_yaml)
    _yaml.parse_yaml = lambda *given, **options: deepcopy(parse(*given, **options))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _answer(connection: socket.socket) -> None:
    """Run a command in a fork and pass on how it ended; a program that is killed takes its fork along."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (process := os.fork()) == 0:
        _run_request(connection)
    first_end = select.poll()
    first_end.register(os.pidfd_open(process), select.POLLIN)
    first_end.register(connection, 0)  # tells only that the program is gone
    if connection.fileno() in dict(first_end.poll()):
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with suppress(BrokenPipeError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run_request(connection: socket.socket) -> None:
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as request:
        sys.argv, folder, environment = json.load(request)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    own = _folders(os.environ)
    sys.path[:] = [*_folders(environment), *(folder for folder in sys.path[1:] if folder not in own)]
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    tempfile.tempdir = None  # it was found in another environment
    os.chdir(folder)
    sys.executable = str(Path(sys.argv[0]).with_name("python"))
    code = _run()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _folders(environment: Mapping[str, str]) -> list[str]:
    return list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


def _run() -> int:
    program = Path(sys.argv[0]).name
    sys.modules["__main__"] = ModuleType("__main__")  # processes that it starts must not look for the server's
    try:
        if program == "python":
            _run_python()
        else:
            sys.exit(import_module(f"{program}.cli").main())
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_python() -> None:
    """Run what follows `python`: `-m MODULE`, `-c CODE`, `-` or a file; `-P` before it."""
    what, *rest = sys.argv[2:] if sys.argv[1] == "-P" else sys.argv[1:]
    if sys.argv[1] != "-P":
        sys.path.insert(0, str(Path(what).parent.resolve()))
    if what == "-m":
        sys.argv = rest
        sys.modules.pop(rest[0], None)  # it runs as `__main__`
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif what in {"-c", "-"}:
        sys.argv = [what, *rest[what == "-c" :]]
        exec(rest[0] if what == "-c" else sys.stdin.read(), vars(sys.modules["__main__"]))
    else:
        sys.argv = [what, *rest]
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
