"""Records: frozen pydantic models that are stored as JSON files, and the one way to read them."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mbd.errors import DataError


class Record(BaseModel):
    """A frozen part of a stored file that knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


def read_record(file: Path, kind: type[AnyRecord], what: str, hint: str) -> AnyRecord:
    """Return the record in `file`; a DataError that names `what` it should be, the key at fault and a hint."""
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"there is no readable {what}", file=file, hint=hint) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or None
        raise DataError(f"the {what} is not valid: {first['msg']}", file=file, key=key, hint=hint) from error
