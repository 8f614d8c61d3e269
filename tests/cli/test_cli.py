"""The command line: fast help, exit codes, errors with hints, completion."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mbd.cli import COMMANDS, group, run_command
from mbd.errors import EXIT_CODES, ExitCode
from mbd.steps.metrics_reporting import REPORTED
from tests.command import run_mbd
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz

HEAVY = ("torch", "kfp", "dvc", "boto3", "transformers", "numpy", "pydantic", "scipy", "sklearn", "h5py")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from mbd.cli import COMMANDS, group\n"
        "for arguments in ([], *([name] for name in COMMANDS)):\n"
        "    group([*arguments, '--help'], prog_name='mbd', standalone_mode=False)\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not heavy, (arguments, heavy)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Usage: mbd") == 1 + len(COMMANDS)


def test_every_command_is_listed_with_what_it_does() -> None:
    text = run_mbd("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in text


def test_what_reports_metrics_is_a_command() -> None:
    def names(of: click.Command, *before: str) -> Iterator[str]:
        yield "-".join(before)
        if isinstance(of, click.Group):
            context = click.Context(of)
            for name in of.list_commands(context):
                if below := of.get_command(context, name):
                    yield from names(below, *before, name)

    assert set(names(group)) >= REPORTED


@pytest.mark.parametrize("arguments", [[], ["request"], ["certificate"], ["purge"]])
def test_no_help_text_is_cut_off(arguments: list[str]) -> None:
    text = run_mbd(*arguments, "--help").stdout
    assert "..." not in text.replace("[ARGS]...", "")


def test_wrong_usage_ends_with_2() -> None:
    for arguments in (["fetures"], ["features"], ["features", "--out", "x", "--set", "training.epoch=1"]):
        result = run_mbd(*arguments)
        assert result.exit_code == 2, result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "nearest"), [(["fetures"], "'features'"), (["keys", "rotat"], "'rotate'"), (["xyzzy"], None)]
)
def test_a_command_that_does_not_exist_gets_the_nearest_one_named(arguments: list[str], nearest: str | None) -> None:
    error = run_mbd(*arguments).stderr
    assert f"No such command '{arguments[-1]}'." in error
    assert ("Did you mean" in error) == (nearest is not None)
    assert (nearest or "") in error


@pytest.mark.parametrize(
    ("module", "extra"),
    [("torch", "train"), ("threadpoolctl", "train"), ("dp_accounting", "privacy"), ("h5py", "data")],
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(module: str, extra: str) -> None:
    script = (
        f"import sys, mbd.cli; sys.argv = ['mbd', 'params']\n"
        f"def missing(*a, **k): raise ModuleNotFoundError('no', name={module!r})\n"
        "mbd.cli.group.main = missing\n"
        "mbd.cli.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_bad_data_ends_with_5_and_names_file_key_and_value(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays["test_labels"] = arrays["test_labels"] + 10
    file = write_npz(tmp_path / "d.npz", arrays)
    result = run_mbd(
        "features",
        *("--set", "features.source.kind=npz", "--set", f"features.source.path={file}"),
        *("--out", str(tmp_path / "out")),
    )
    assert result.exit_code == 5
    for part in ("error: 8 labels lie outside", str(file), "key: test_labels", "value: ", "hint: "):
        assert part in result.stderr
    assert not (tmp_path / "out").exists()


def test_features_prints_a_summary_and_logs_where_it_was_written(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "d.npz", npz_arrays(small_collection()))
    settings = [f"features.source.path={file}", "features.source.kind=npz", "features.calibration.share=0.5"]
    result = run_mbd("features", "--out", str(tmp_path / "out"), *(a for s in settings for a in ("--set", s)))
    assert result.exit_code == 0, result.stderr
    for part in ("text 5, audio 3, visual 4", "calibration", "ridge on test", "non_negative_percent"):
        assert part in result.stdout
    out = tmp_path / "out"
    assert result.stderr == f"FeatureSet written to {out}\nnext: mbd train --features {out} --out MODEL\n"


def test_params_prints_every_parameter_and_the_digest(tmp_path: Path) -> None:
    result = run_mbd("params", "--set", "training.seed=5", cwd=tmp_path)
    assert "  seed: 5  # seed of every random stream" in result.stdout
    assert "# digest: sha256:" in result.stdout
    (tmp_path / "params.yaml").write_text(result.stdout)
    assert run_mbd("params", cwd=tmp_path).stdout == result.stdout


def test_an_interrupted_command_ends_with_130_and_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def endless() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        run_command(endless, "endless", [])
    assert end.value.code == 130
    assert capsys.readouterr().err.endswith("error: interrupted; nothing half-written is left, run the command again\n")


def test_a_declined_confirmation_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def decline() -> None:
        raise click.Abort

    with pytest.raises(SystemExit) as end:
        run_command(decline, "decline", [])
    assert end.value.code == 1
    assert capsys.readouterr().err == "error: aborted, nothing was done\n"


def test_ctrl_c_ends_a_running_command_with_130(tmp_path: Path) -> None:
    script = (
        "import signal\n"  # a step that is interrupted while it writes, also where a shell has these tests ignore it
    )
    script += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from mbd.steps import features\n"
    script += "features.convert = lambda *_: signal.raise_signal(signal.SIGINT)\n"
    script += "from mbd.cli import main; main(['features', '--out', 'out'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_exit_codes_are_documented_as_they_are() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8").split())
    assert EXIT_CODES in text


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, by its full name."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            if found := command.get_command(context, below):
                yield from leaves(found, f"{name} {below}")


WITHOUT_JSON = {
    "mbd demo": "a story for people",
    "mbd exporter": "its page is in Prometheus's format",
    "mbd pipeline run": "its result is the steps' outputs",
    "mbd deploy render": "its result is YAML, for kubectl",
    "mbd serve": "it prints its address and serves until it is stopped",
    "mbd purge check-push": "git calls it and reads its exit code",
    "mbd purge hook install": "it prints the file that it wrote",
}


def test_every_command_that_prints_a_result_has_json() -> None:
    without = {n for n, c in leaves(group, "mbd") if "json" not in {p.name for p in c.params}}
    assert without == WITHOUT_JSON.keys()


def test_a_shared_option_is_the_same_in_every_command() -> None:
    found: dict[str, set[str]] = {"--store": set(), "--json": set(), "--trust": set()}
    for _, command in leaves(group, "mbd"):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.opts[0] in found:
                found[parameter.opts[0]].add((parameter.help or "").partition(" [default")[0])
    assert all(len(helps) == 1 for helps in found.values()), found


def test_the_shell_completes_commands_and_options() -> None:
    environment = {"_MBD_COMPLETE": "bash_complete", "COMP_WORDS": "mbd cert", "COMP_CWORD": "1"}
    assert completed(environment) == ["plain,certify", "plain,certificate"]
    environment |= {"COMP_WORDS": "mbd certificate revoke --re", "COMP_CWORD": "3"}
    assert completed(environment) == ["plain,--reason"]


def completed(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from mbd.cli import main; main()"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return done.stdout.split()


def test_what_to_do_next_has_the_same_parameters_as_what_was_done(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "d.npz", npz_arrays(small_collection()))
    settings = (f"features.source.path={file}", "features.calibration.share=0.5", "model.backbone=lattice")
    result = run_mbd("features", "--out", str(tmp_path / "out"), *(a for s in settings for a in ("--set", s)))
    assert f"next: mbd train --features {tmp_path / 'out'} --out MODEL --set model.backbone=lattice\n" in result.stderr


def test_after_a_reference_a_method_that_suits_it_is_suggested(tmp_path: Path) -> None:
    data = synthetic_set(tmp_path / "set")
    train = ("train", "--features", str(data), "--without", "audio", "--out", str(tmp_path / "model"))
    result = run_mbd(*train, "--set", "model.backbone=lattice", "--set", "model.lattice.landmarks=0")
    assert " --set deletion.method=exact --out DELETED" in result.stderr


def test_a_full_disk_is_an_error_with_a_hint_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    script += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    script += f"from mbd.cli import main; main(['features', '--out', {str(out)!r}])\n"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == ExitCode.FAILURE
    assert result.stderr.startswith("error: cannot write: File too large")
    assert f"  file: {out}\n" in result.stderr
    assert "hint: free some space" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
