"""Run the stages of a DVC project side by side, each after those it depends on; what is up to date is left alone.

DVC itself runs one stage after the other. A process for each stage asks DVC for that stage alone, and DVC's own
lock keeps them apart while they read and write its records; the commands themselves run at the same time. Killed
anywhere and run again, it goes on with the stages that are not done.
"""

import multiprocessing
import os
import time
from collections.abc import Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import MbdError
from mbd.logs import progress_bar

PROJECT = Path("studies")
_PATIENCE = 2.0  # seconds


@dataclass(frozen=True)
class Stages:
    """Names of stages, what each of them depends on, and which pipeline file defines it."""

    needs: Mapping[str, frozenset[str]]
    files: Mapping[str, str]

    def upstream(self, names: Collection[str]) -> set[str]:
        """Return `names` and everything they depend on."""
        found, open_ends = set[str](), list(names)
        while open_ends:
            name = open_ends.pop()
            if name not in found:
                found.add(name)
                open_ends += self.needs[name]
        return found

    def heights(self) -> dict[str, int]:
        """Return for each stage the length of the longest chain of stages that wait for it."""
        heights = dict.fromkeys(self.needs, 0)
        waiting = list(self.needs)
        while waiting:
            name = waiting.pop()
            for needed in self.needs[name]:
                if heights[needed] <= heights[name]:
                    heights[needed] = heights[name] + 1
                    waiting.append(needed)
        return heights


def read_stages(project: Path = PROJECT) -> Stages:
    """Read the stages of a DVC project."""
    from dvc.repo import Repo  # noqa: PLC0415 -- slow to import

    with Repo(str(project)) as repo:
        graph = repo.index.graph
        needs = {stage.name: frozenset(other.name for other in graph.successors(stage)) for stage in graph}
        return Stages(needs, {stage.name: stage.path_in_repo for stage in graph})


def run_stages(stages: Stages, names: Collection[str], *, jobs: int, logs: Path, project: Path = PROJECT) -> int:
    """Reproduce `names` and what they depend on, at most `jobs` at a time; return how many stages had to run.

    An MbdError names the stage that failed; the others that were running are finished first.
    """
    logs, project = logs.absolute(), project.absolute()
    logs.mkdir(parents=True, exist_ok=True)
    left, running = stages.upstream(names), dict[Future[bool], str]()
    changed, done, ran = changed_stages(project), set[str](), set[str]()
    heights = stages.heights()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dvc.repo.reproduce", "dvc.stage.run"])
    failed: MbdError | None = None
    with (
        ProcessPoolExecutor(jobs, mp_context=context) as pool,
        progress_bar(total=len(left), unit="stage", dynamic_ncols=True) as bar,
    ):
        while running or (left and not failed):
            ready = [] if failed else sorted(name for name in left if stages.needs[name] <= done)
            ready.sort(key=lambda name: -heights[name])  # what most others wait for comes first
            if fresh := {name for name in ready if name not in changed and not stages.needs[name] & ran}:
                left -= fresh
                done |= fresh
                bar.update(len(fresh))
                continue
            for name in ready[: jobs - len(running)]:
                left.remove(name)
                running[pool.submit(reproduce, name, stages.files[name], project, log_of(name, logs))] = name
            bar.set_postfix_str(", ".join(running.values()))
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                try:
                    ran |= {name} if future.result() else set()
                except MbdError as error:
                    failed = failed or error
                else:
                    done.add(name)
                    bar.update()
    if failed:
        raise failed
    return len(ran)


def changed_stages(project: Path) -> set[str]:
    """Return the stages whose command, parameters, dependencies or outputs are not those of their last run."""
    from dvc.lock import LockError  # noqa: PLC0415 -- slow to import
    from dvc.repo import Repo  # noqa: PLC0415

    with Repo(str(project), _wait_for_lock=True) as repo:
        try:
            return {name.rpartition(":")[2] for name in repo.status()}
        except LockError:  # others are at work on some stage, so each is looked at when its turn comes
            return {stage.name for stage in repo.index.stages}


def log_of(name: str, logs: Path) -> Path:
    """Return the file with what a stage printed."""
    return logs / f"{name}.log"


def reproduce(name: str, file: str, project: Path, log: Path) -> bool:
    """Let DVC bring one stage up to date, in this process; return whether it had to run."""
    from dvc.exceptions import DvcException  # noqa: PLC0415 -- slow to import
    from dvc.lock import LockError  # noqa: PLC0415
    from dvc.repo import Repo  # noqa: PLC0415

    with log.open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    os.chdir(project)
    try:
        while True:
            try:
                with Repo(_wait_for_lock=True) as repo:
                    return bool(repo.reproduce(f"{file}:{name}", single_item=True))
            except LockError:  # a stage of a run that was killed is still at work on the same files
                time.sleep(_PATIENCE)
    except DvcException as error:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        raise MbdError(
            f"the stage {name} failed: {lines[-1] if lines else error.__cause__ or error}",
            file=log,
            hint="repair what the log names, and run it again: finished cells are kept",
        ) from error
