"""The JSON Schema of certificates that is published (docs/schemas/certificate.schema.json), made from the code."""

from mbd.certificate.statement import DELETION_TYPE, DeletionStatement
from mbd.files import to_json


def published_schema() -> str:
    """Return the schema of the payload of a certificate, as JSON."""
    schema = DeletionStatement.model_json_schema(by_alias=True, mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": DELETION_TYPE}
    return to_json({**head, **schema})
