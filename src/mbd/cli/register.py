"""`mbd register`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import FOLDER, JSON, STORE, features, model, print_result, suggest

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@model("Trained model.")
@click.option(
    "--reference",
    "references",
    type=FOLDER,
    multiple=True,
    metavar="DIR",
    help="Model that was trained like it, --without a modality, or a folder of such models; repeatable.",
)
@click.option("--as", "name", metavar="NAME", help="Name under which it is served [default: certificate.model].")
@STORE
@features(
    required=False,
    help="FeatureSet to compare it on with the current release: it becomes current only if it is not worse.",
)
@JSON
@with_params
def command(
    params: "Params",
    model: Path,
    references: tuple[Path, ...],
    name: str | None,
    store: str | None,
    features: Path | None,
    as_json: bool,
) -> None:
    """Register a trained model and its references: a signed, logged statement. Safe to repeat.

    It becomes the current release of its name, unless --features shows that it is worse than the one that is. A model
    that was trained on what is revoked for the name is refused (exit code 4).
    """
    from mbd.production import register

    url = store or params.store.url
    result = register.run(params, model, references, name or params.certificate.model, url, features)
    ready = ", ".join(f"without {without}" for without in result.references) or "none"
    state = "current" if result.promoted else "not promoted"
    lines = [
        f"registration {result.registration}",
        f"{result.model}: {state} ({result.reason})",
        f"references: {ready}",
    ]
    print_result(result, "\n".join(lines), as_json=as_json)
    suggest("models", "show", result.model, "--store", url)
