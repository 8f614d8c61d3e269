"""What runs on Kubeflow: `mbd pipeline` and `mbd deploy`."""

import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, print_result, suggest, with_params, with_params_only
from mbd.errors import MbdError, UsageError
from mbd.files import find_bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from mbd.params import Params

_SIGNING = ("train", "delete")
_POLL_SECONDS = 5
_NAME = click.argument("name", metavar="NAME")
_MODALITY = options.several("--modality", "modalities", "MODALITY", "Modality to delete; repeatable.")
_SUBJECT = options.several(
    "--subject",
    "subjects",
    "REFERENCE",
    "Delete it of this person only: the pseudonym in their request (`mbd request show`), no id; repeatable.",
)
_ARGUMENT = options.several("--argument", "arguments", "KEY=JSON", "Argument of the pipeline; repeatable.")


def _what(command: options.Decorated) -> options.Decorated:
    """Add what a run of a pipeline is of."""
    return _NAME(_MODALITY(_SUBJECT(_ARGUMENT(command))))


@click.group(cls=CommandGroup)
def command() -> None:
    """Kubeflow pipelines: compile them, run them here, submit and schedule them on a cluster."""


def pipelines(module: str) -> Any:  # noqa: ANN401 -- a module
    """Return a module of the package `pipelines`."""
    folder = str(find_bundled(f"pipelines/{module}.py").parents[1])
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(f"pipelines.{module}")


@command.command("compile")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@options.folder("--out", "Folder to write NAME.yaml to.", default="pipelines", show_default=True)
@with_params
def compile_command(params: "Params", names: tuple[str, ...], out: Path) -> None:
    """Write pipelines (default: all) as the YAML that Kubeflow takes."""
    files = list(pipelines("compiling").write(names, params.platform, out))
    print_result(files, "\n".join(f"written to {file}" for file in files))


@command.command()
@_what
@click.option(
    "--runner",
    type=click.Choice(["subprocess", "docker"]),
    default="subprocess",
    show_default=True,
    help="Each step a process, or a container of platform.image.",
)
@options.folder("--root", "Folder for the steps' outputs.", default="build/kfp", show_default=True)
@click.option("--network", default="none", show_default=True, help="Docker network of the containers.")
@with_params_only
def run(params: "Params", name: str, runner: str, root: Path, network: str, **asked: tuple[str, ...]) -> None:
    """Run a pipeline on this machine; `train` and `delete` sign with a key that is made here if there is none."""
    from mbd.params.resolve import on_one_machine

    params = on_one_machine(params)
    given = pipelines("arguments").given(name, params, **asked)
    if name in _SIGNING and not Path(params.certificate.trust).exists():
        from mbd.trust.keys import make_keys

        make_keys(Path(params.certificate.trust).parent, "signer", if_none=True)
    outputs = pipelines("local").run_pipeline(name, params.platform, given, root, runner, network=network)
    for label, folder in outputs.items():
        click.echo(f"{label + ':':<13}{folder}")
    if "certificate" in outputs:
        click.echo(f"{'store:':<13}{params.store.url}")
        trust = ("--store", params.store.url, "--trust", params.certificate.trust)
        suggest("verify", outputs["certificate"], "--model", outputs["model"], *trust)


_TITLE = click.option("--title", help="Name of the run or schedule [default: made from pipeline and arguments].")
_DRY_RUN = options.flag("--dry-run", "Print what would be sent, and send nothing.")


@command.command()
@_what
@_TITLE
@_DRY_RUN
@with_params
def submit(params: "Params", name: str, title: str | None, dry_run: bool, **asked: tuple[str, ...]) -> None:
    """Run a pipeline on the cluster; the same submission again finds the run that is there."""
    cluster = pipelines("cluster")
    given = pipelines("arguments").given(name, params, **asked)
    wanted = cluster.submission(name, params.platform, given, title=title)
    send = None if dry_run else lambda: cluster.Cluster(params.platform).submit(name, wanted)
    _send(params, name, wanted, given, send)


@command.command()
@_what
@_TITLE
@click.option("--cron", help="When: five fields as in crontab, or six with the second first.")
@options.flag("--disable", "Stop the schedule of this name instead.")
@_DRY_RUN
@with_params
def schedule(
    params: "Params",
    name: str,
    title: str | None,
    cron: str | None,
    *,
    disable: bool,
    dry_run: bool,
    **asked: tuple[str, ...],
) -> None:
    """Run a pipeline on the cluster by a schedule; a schedule of the same name is updated."""
    cluster = pipelines("cluster")
    if disable:
        jobs = list(cluster.Cluster(params.platform).disable(title or f"mbd-{name}"))
        print_result({"disabled": jobs}, "\n".join(f"disabled: {job}" for job in jobs))
        return
    if cron is None:
        raise UsageError("a schedule needs a time", key="--cron", hint="for example --cron '0 3 * * *'")
    given = pipelines("arguments").given(name, params, **asked)
    when = pipelines("schedule").checked_cron(cron)
    wanted = cluster.submission(name, params.platform, given, cron=when, title=title)
    send = None if dry_run else lambda: cluster.Cluster(params.platform).schedule(name, wanted)
    _send(params, name, wanted, given, send)


@command.command()
@click.argument("run", required=False, metavar="[RUN]")
@options.flag("--watch", "Follow the run until it ends; exit code 1 if it fails.")
@options.flag("--logs", "Also print the logs of the tasks that failed.")
@with_params
def status(params: "Params", run: str | None, watch: bool, logs: bool) -> None:
    """List runs and schedules of the experiment, or the tasks of one run (its name or id), with why a task failed."""
    cluster = pipelines("cluster").Cluster(params.platform)
    if run is None:
        if watch or logs:
            raise UsageError("no run is named", key="RUN", hint="`mbd pipeline status` lists them")
        listed = cluster.status()
        lines = []
        for kind, entries in listed.items():
            lines += [f"{kind}: {len(entries)}", *("  " + "  ".join(entry.values()) for entry in entries)]
        print_result(listed, "\n".join(lines))
        return
    state = _follow(cluster, run) if watch else cluster.run(run)
    namespace = params.platform.namespace or "kubeflow"
    lines = [f"{run}: {state.state}", *(f"  {task.name}  {task.state}" for task in state.tasks)]
    for task in state.failed:
        which = task.pod or f"--selector pipeline/runid={state.identifier} --prefix --tail -1"
        lines.append(f"failed: {task.name}: {task.reason or 'its pod left no log that Kubeflow has'}")
        lines.append(f"  its log: kubectl logs --namespace {namespace} --container main {which}")
        if logs and task.log:
            lines.append(task.log)
    shown = [task if logs else task._replace(log="") for task in state.tasks]
    print_result(state._replace(tasks=[task._asdict() for task in shown])._asdict(), "\n".join(lines))
    if watch and state.state != "SUCCEEDED":
        raise MbdError("the run has failed", value=state.state, hint=f"mbd pipeline status {state.identifier} --logs")


def _follow(cluster: Any, run: str) -> Any:  # noqa: ANN401 -- of `pipelines`
    """Follow a run until it ends, with a bar of its finished tasks."""
    import time

    from mbd.logs import progress_bar

    with progress_bar(unit="task", desc=run) as bar:
        while (state := cluster.run(run)).unfinished:
            bar.total, bar.n = len(state.tasks), sum(task.state == "SUCCEEDED" for task in state.tasks)
            bar.set_postfix_str(", ".join(task.name for task in state.tasks if task.state == "RUNNING"))
            time.sleep(_POLL_SECONDS)
    return state


def _send(
    params: "Params",
    name: str,
    wanted: Any,  # noqa: ANN401 -- of `pipelines`
    given: dict[str, Any],
    send: "Callable[[], tuple[Any, ...]] | None",
) -> None:
    """Send what is wanted, or print it; what would make the run fail on the cluster is said before."""
    problems = list(pipelines("checks").find_problems(name, params, given))
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)
    if send is None:
        print_result({**asdict(wanted), "problems": problems})
        return
    outcome, identifier, *rest = send()
    result = {"outcome": outcome, "name": wanted.name, "id": identifier}
    lines = [f"{outcome}: {wanted.name} ({identifier})"]
    if unfinished := [run for runs in rest for run in runs]:
        result["unfinished"] = unfinished
        lines.append(f"the schedule before is disabled, and stays until its run has ended: {', '.join(unfinished)}")
        lines.append("the same command removes it then")
    print_result(result, "\n".join(lines))


@click.group("deploy", cls=CommandGroup)
def deploy_command() -> None:
    """Everything that a namespace beside Kubeflow needs, as manifests for Kubernetes."""


@deploy_command.command()
@options.path(
    "--values", "What is no parameter (`mbd init --kubeflow` writes it).", default="values.yaml", show_default=True
)
@with_params_only
def render(params: "Params", values: Path) -> None:
    """Print the manifests, for `kubectl apply --filename -`, of the values and of the parameters of the pipelines."""
    import yaml

    from mbd.deployment.manifests import render as rendered
    from mbd.deployment.values import read_values

    if "@sha256:" not in params.platform.image:
        click.echo(f"warning: platform.image={params.platform.image} is not pinned by digest (NAME@sha256:…)", err=True)
    click.echo(yaml.safe_dump_all(rendered(read_values(values), params), sort_keys=False), nl=False)
