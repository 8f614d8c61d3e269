"""`mbd params`."""

import json
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--schema", is_flag=True, help="Print the JSON Schema of params.yaml instead.")
@with_params
def command(params: "Params", schema: bool) -> None:
    """Print every parameter as it is resolved, with its meaning, and the digest of the set."""
    from mbd.params import params_digest, to_yaml

    if schema:
        click.echo(json.dumps(type(params).model_json_schema(), indent=2))
        return
    click.echo(to_yaml(params), nl=False)
    click.echo(f"# digest: sha256:{params_digest(params)}")
