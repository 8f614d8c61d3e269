"""`mbd guard`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mbd.cli.common import with_reader_params
from mbd.cli.options import FILE, JSON, STORE, TRUST, existing_store, model, print_result

if TYPE_CHECKING:
    from mbd.params.reader import ReaderParams

_LOG = logging.getLogger(__name__)


@click.command()
@model("Model folder that is about to be served.")
@STORE
@TRUST
@click.option("--schema", type=FILE, help="File to write the JSON Schema of its inputs to [default: print it].")
@JSON
@with_reader_params
def command(
    params: "ReaderParams", model: Path, store: str | None, trust: Path | None, schema: Path | None, as_json: bool
) -> None:
    """Admit a model to serving or refuse it (exit code 4), and print the JSON Schema of its inputs.

    A model is admitted if a certificate of its weights verifies, is in the log, is not revoked, superseded, refuted or
    overdue, and the model takes no modality that was revoked for its name; or if it was registered (`mbd register`) and
    its training has seen nothing that was revoked for its name. The log must be complete, and its checkpoint not older
    than certificate.checkpoint_days.
    """
    from mbd.certificate.guard import admit, input_schema
    from mbd.files import to_json, write_file
    from mbd.steps.context import read_folder
    from mbd.trust.trust_file import read_trust, require_trust
    from mbd.verifier.verdict import fingerprint

    file = require_trust(trust)
    trusted, age = read_trust(file), params.certificate.checkpoint_age
    admission = admit(read_folder(model), existing_store(params, store), trusted, max_age=age)
    inputs = input_schema(admission.record)
    _LOG.info("admitted by %s %s", "certificate" if admission.certificate else "registration", admission.release.digest)
    _LOG.info("trust file %s, fingerprint %s", file.absolute(), fingerprint(trusted.digest))
    if schema is not None:
        write_file(schema, to_json(inputs))
        _LOG.info("written to %s", schema)
    if as_json:
        by = {"certificate": admission.certificate, "registration": admission.registration}
        result = {**by, "model": admission.release.model, "inputs": inputs}
        trust_used = {"trust": trusted.digest, "trust_file": str(file.absolute())}
        print_result(result | trust_used, "", as_json=True)
    elif schema is None:
        print_result(inputs, "", as_json=True)
