"""`mbd shred`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli import options
from mbd.cli.options import CommandGroup, print_result, wants_json, with_params
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.formats.shredding import KeyEntry
    from mbd.formats.statement import KeyKind
    from mbd.params import Params

_LOG = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def command() -> None:
    """Encrypt feature data and models by modality, and make them unreadable everywhere by destroying a key."""


@command.command()
@click.option("--rewrap", "uri", metavar="URI", help="Wrap the data keys with this key: file:PATH or awskms:KEY.")
@options.flag("--destroy-old", "Destroy the old key file, so that old copies of wrapped keys are useless.")
@with_params
def keys(params: "Params", uri: str | None, destroy_old: bool) -> None:
    """Create the key that wraps data keys, or replace it, and test it."""
    from mbd.shredding.keys import Keyring, overwrite_and_remove
    from mbd.shredding.wrapper import FileWrapper, file_of, open_wrapper

    old, new = params.shredding.wrapper, uri or params.shredding.wrapper
    if destroy_old and (uri in {None, old} or not old.startswith("file:")):
        raise UsageError("--destroy-old needs --rewrap with another URI, and an old key in a file", value=old)
    wrapper = open_wrapper(new)
    if isinstance(wrapper, FileWrapper) and wrapper.make():
        _LOG.info("created %s, readable by you only: back it up apart from %s", wrapper.file, params.shredding.keys)
    probe = {"id": "", "purpose": "probe"}
    wrapper.unwrap(wrapper.wrap(bytes(32), probe), probe)
    if uri:
        count = Keyring.of(params.shredding).rewrap(wrapper)
        _LOG.info("%d data keys are wrapped by %s: set shredding.wrapper to it", count, new)
        if destroy_old:
            overwrite_and_remove(file_of(old))
            _LOG.info("destroyed %s", file_of(old))
    print_result({"wrapper": new}, f"{new} wraps and unwraps")


@command.command()
@options.features("feature_sets", required=False, multiple=True)
@options.model("Model folder, or one of seeds; repeatable.", "model_folders", required=False, multiple=True)
@options.out("the encrypted folders, each under its own name,", required=False)
@options.flag("--replace", "Encrypt the folders in place; the plain files are removed.")
@with_params
def encrypt(
    params: "Params", feature_sets: tuple[Path, ...], model_folders: tuple[Path, ...], out: Path | None, replace: bool
) -> None:
    """Encrypt FeatureSets and models; data keys are created as they are needed."""
    from mbd.shredding.keys import Keyring
    from mbd.shredding.vault import encrypt_folder, encrypt_in_place

    folders = [*feature_sets, *model_folders]
    names = [folder.resolve().name for folder in folders]
    if not folders or (out is None) != replace:
        raise click.UsageError("give --features or --model, and either --out DIR or --replace")
    if len(set(names)) != len(names):
        raise UsageError("two folders have the same name", value=", ".join(names), hint="encrypt them one by one")
    keyring, lineage = Keyring.of(params.shredding), params.shredding.lineage
    result, lines = [], []
    for folder, name in zip(folders, names, strict=True):
        goal = folder if out is None else out / name
        count = encrypt_folder(folder, goal, keyring, lineage) if out else encrypt_in_place(folder, keyring, lineage)
        result.append({"folder": folder, "encrypted": goal, "files": count})
        lines.append(f"{count} files of {folder} encrypted in {goal}" if count else f"{folder} was encrypted already")
    print_result(result, "\n".join(lines))


@command.command()
@click.argument("folder", type=options.FOLDER)
@options.out("the plain files")
@with_params
def decrypt(params: "Params", folder: Path, out: Path) -> None:
    """Decrypt FOLDER permanently. Steps do not need this: with shredding.enabled they decrypt what they read."""
    from mbd.shredding.keys import Keyring
    from mbd.shredding.vault import decrypted

    count = decrypted(folder, out, Keyring.of(params.shredding), params.shredding.lineage, _LOG.warning)
    print_result({"files": count, "out": out}, f"{count} files decrypted")
    _LOG.info("written to %s", out)


@command.command()
@options.MODALITIES
@click.option("--lineage", help="Lineage of the keys [default: shredding.lineage, or the only one].")
@click.option(
    "--kind", "kinds", type=click.Choice(["features", "models"]), multiple=True, help="Only these keys [default: both]."
)
@options.reason("Why, shown when decryption fails later; no names of persons.")
@options.YES
@with_params
def destroy(
    params: "Params",
    modalities: tuple[str, ...],
    lineage: str | None,
    kinds: tuple["KeyKind", ...],
    reason: str,
    yes: bool,
) -> None:
    """Destroy the keys of a modality: its feature files and all models trained on it become unreadable."""
    from mbd.formats.shredding import KINDS, shredding_facts
    from mbd.shredding.keys import Keyring

    keyring, chosen = Keyring.of(params.shredding), kinds or KINDS
    whose = lineage or params.shredding.lineage or _only_lineage(params)
    if not yes:
        what = f"{' and '.join(chosen)} of {', '.join(modalities)} in the lineage {whose}"
        click.confirm(f"make {what} unreadable for good, in every copy?", abort=True, err=wants_json())
    destroyed = list(keyring.destroy(whose, modalities, chosen, reason))
    facts = shredding_facts(keyring.folder, whose, modalities, chosen)
    assert facts is not None  # noqa: S101 -- keys were just destroyed
    text = "\n".join([*map(_line, destroyed), f"\nrecord {facts.record}, in {keyring.folder}"])
    print_result({"destroyed": destroyed, "record": facts.record}, text)


@command.command("list")
@with_params
def list_keys(params: "Params") -> None:
    """List existing and destroyed data keys."""
    from mbd.formats.shredding import read_shredding

    record = read_shredding(Path(params.shredding.keys))
    if wants_json():
        click.echo(record.to_bytes(), nl=False)
        return
    none = f"there is no data key in {params.shredding.keys}"
    click.echo("\n".join(map(_line, record.keys)) if record.keys else none)


def _only_lineage(params: "Params") -> str:
    from mbd.formats.shredding import read_shredding

    lineages = sorted({key.name.lineage for key in read_shredding(Path(params.shredding.keys)).keys})
    if len(lineages) != 1:
        raise UsageError(
            "the lineage of the keys to destroy is missing",
            key="--lineage",
            hint=f"there are keys of: {', '.join(lineages) or 'none'}",
        )
    return lineages[0]


def _line(entry: "KeyEntry") -> str:
    name, gone = entry.name, entry.destroyed
    state = f"since {entry.created:%Y-%m-%d %H:%M:%SZ}"
    if gone:
        end = f"DESTROYED {gone.done:%Y-%m-%d %H:%M:%SZ}" if gone.done else "DESTRUCTION NOT FINISHED, run it again"
        state += f"  {end}: {gone.reason}"
    return f"{entry.id[:12]}  {name.lineage:<16} {name.kind:<8} {name.modality:<10}  {state}"
