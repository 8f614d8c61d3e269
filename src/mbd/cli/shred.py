"""`mbd shred`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import FOLDER, CommandGroup, with_params
from mbd.errors import UsageError

if TYPE_CHECKING:
    from mbd.formats.shredding import KeyEntry, Kind
    from mbd.params import Params


@click.group(cls=CommandGroup)
def command() -> None:
    """Encrypt feature data and models by modality, and make them unreadable everywhere by destroying a key."""


@command.command()
@click.option("--rewrap", "uri", metavar="URI", help="Let this key (file:PATH, awskms:KEY) wrap the data keys instead.")
@click.option(
    "--destroy-old", is_flag=True, help="Destroy the file of the old key: old copies of wrapped keys are dead."
)
@with_params
def keys(params: "Params", uri: str | None, destroy_old: bool) -> None:
    """Make the key that wraps data keys, or replace it; then tell whether it works."""
    from mbd.shredding.keys import Keyring, overwrite_and_remove
    from mbd.shredding.wrapper import FileWrapper, file_of, open_wrapper

    old, new = params.shredding.wrapper, uri or params.shredding.wrapper
    if destroy_old and (uri in {None, old} or not old.startswith("file:")):
        raise UsageError("--destroy-old needs --rewrap with another URI, and an old key in a file", value=old)
    wrapper = open_wrapper(new)
    if isinstance(wrapper, FileWrapper) and wrapper.make():
        click.echo(f"made {wrapper.file}, readable by you only: back it up apart from {params.shredding.keys}")
    probe = {"id": "", "purpose": "probe"}
    wrapper.unwrap(wrapper.wrap(bytes(32), probe), probe)
    if uri:
        count = Keyring.of(params.shredding).rewrap(wrapper)
        click.echo(f"{count} data keys are wrapped by {new}: set shredding.wrapper to it")
        if destroy_old:
            overwrite_and_remove(file_of(old))
            click.echo(f"destroyed {file_of(old)}")
    click.echo(f"{new} wraps and unwraps")


@command.command()
@click.option("--features", "feature_sets", type=FOLDER, multiple=True, help="FeatureSet; repeatable.")
@click.option("--model", "model_folders", type=FOLDER, multiple=True, help="Model folder, or one of seeds; repeatable.")
@click.option("--out", type=FOLDER, help="Write the encrypted folders into this one, each under its own name.")
@click.option("--replace", is_flag=True, help="Encrypt the folders in their place; the plain files are removed.")
@with_params
def encrypt(
    params: "Params", feature_sets: tuple[Path, ...], model_folders: tuple[Path, ...], out: Path | None, replace: bool
) -> None:
    """Encrypt FeatureSets and models; data keys are made as they are needed."""
    from mbd.shredding.keys import Keyring
    from mbd.shredding.vault import encrypt_folder, encrypt_in_place

    folders = [*feature_sets, *model_folders]
    names = [folder.resolve().name for folder in folders]
    if not folders or (out is None) != replace:
        raise click.UsageError("give --features or --model, and either --out DIR or --replace")
    if len(set(names)) != len(names):
        raise UsageError("two folders have the same name", value=", ".join(names), hint="encrypt them one by one")
    keyring, lineage = Keyring.of(params.shredding), params.shredding.lineage
    for folder, name in zip(folders, names, strict=True):
        goal = folder if out is None else out / name
        count = encrypt_folder(folder, goal, keyring, lineage) if out else encrypt_in_place(folder, keyring, lineage)
        click.echo(f"{count} files of {folder} encrypted in {goal}" if count else f"{folder} was encrypted already")


@command.command()
@click.argument("folder", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="Folder to write the plain form to, to stay.")
@with_params
def decrypt(params: "Params", folder: Path, out: Path) -> None:
    """Decrypt FOLDER for good. Steps need no such thing: with shredding.enabled they decrypt for themselves."""
    from mbd.shredding.keys import Keyring
    from mbd.shredding.vault import decrypted

    def tell(text: str) -> None:
        click.echo(text, err=True)

    count = decrypted(folder, out, Keyring.of(params.shredding), params.shredding.lineage, tell)
    click.echo(f"{count} files decrypted\n\nwritten to {out}")


@command.command()
@click.option("--modality", "modalities", required=True, multiple=True, metavar="MODALITY", help="Repeatable.")
@click.option("--lineage", help="Whose keys [default: shredding.lineage, or the only one there is].")
@click.option(
    "--kind", "kinds", type=click.Choice(["features", "models"]), multiple=True, help="Only these keys [default: both]."
)
@click.option("--reason", required=True, help="Why, for whoever wants to decrypt later; name no person.")
@click.option("--yes", is_flag=True, help="Destroy without asking.")
@with_params
def destroy(
    params: "Params",
    modalities: tuple[str, ...],
    lineage: str | None,
    kinds: tuple["Kind", ...],
    reason: str,
    yes: bool,
) -> None:
    """Destroy the keys of a modality: its feature files and all models that took it can never be read again."""
    from mbd.formats.shredding import KINDS, shredding_facts
    from mbd.shredding.keys import Keyring

    keyring, chosen = Keyring.of(params.shredding), kinds or KINDS
    whose = lineage or params.shredding.lineage or _only_lineage(params)
    if not yes:
        what = f"{' and '.join(chosen)} of {', '.join(modalities)} in the lineage {whose}"
        click.confirm(f"make {what} unreadable for good, in every copy?", abort=True)
    for entry in keyring.destroy(whose, modalities, chosen, reason):
        click.echo(_line(entry))
    facts = shredding_facts(keyring.folder, whose, modalities, chosen)
    assert facts is not None  # noqa: S101 -- keys were just destroyed
    click.echo(f"\nrecord {facts.record}, in {keyring.folder}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@with_params
def list_keys(params: "Params", as_json: bool) -> None:
    """List the data keys that there are and were."""
    from mbd.formats.shredding import read_shredding

    record = read_shredding(Path(params.shredding.keys))
    if as_json:
        click.echo(record.to_bytes(), nl=False)
        return
    for entry in record.keys:
        click.echo(_line(entry))
    if not record.keys:
        click.echo(f"there is no data key in {params.shredding.keys}")


def _only_lineage(params: "Params") -> str:
    from mbd.formats.shredding import read_shredding

    lineages = sorted({key.name.lineage for key in read_shredding(Path(params.shredding.keys)).keys})
    if len(lineages) != 1:
        raise UsageError(
            "it is not said whose keys to destroy",
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
