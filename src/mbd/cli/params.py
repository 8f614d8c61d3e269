"""`mbd params`."""

from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_params
from mbd.cli.options import JSON, print_result

if TYPE_CHECKING:
    from mbd.params import Params


@click.command()
@click.option("--schema", is_flag=True, help="Print the JSON Schema of params.yaml instead.")
@JSON
@with_params
def command(params: "Params", schema: bool, as_json: bool) -> None:
    """Print the value and the meaning of every parameter, and the digest of all values."""
    from mbd.params import params_digest, to_yaml

    if schema:
        print_result(type(params).model_json_schema(), "", as_json=True)
        return
    digest = f"sha256:{params_digest(params)}"
    print_result({"params": params, "digest": digest}, f"{to_yaml(params)}# digest: {digest}", as_json=as_json)
