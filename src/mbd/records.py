"""Records: frozen pydantic models that are stored as JSON, the types they share, and the one way to read them.

A record is read by :meth:`Record.from_bytes` (or :meth:`Record.read`) and written by :meth:`Record.to_bytes`. Stored
bytes that are no such record raise a :class:`~mbd.errors.DataError` that names the file, the key at fault and a hint.

Names of modalities, models and files are checked where they enter and again where they are read. A name starts with a
letter or a digit and contains only letters, digits, blanks, `_`, `-` and `.`. Letters and digits of all scripts are
allowed, in Unicode normalization form C. So a name contains no path separator and no control character, is never `..`
or hidden, and cannot be confused with the file `_rows` of a FeatureSet or with a combination of modalities such as
`text+visual`. Names that operating systems or reports use for something else are reserved. A relative path consists of
file names separated by `/`; these may also start with `_`.
"""

import ast
import inspect
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from mbd.errors import DataError, MbdError
from mbd.files import to_json

LONGEST = 100
RESERVED = frozenset(
    {"full", "con", "prn", "aux", "nul", *(f"{device}{number}" for device in ("com", "lpt") for number in range(1, 10))}
)
"""in lower case: the regime `full`, and device names of Windows"""
HINT = "a name starts with a letter or a digit and contains only letters, digits, blanks, `_`, `-` and `.`"
_PUNCTUATION = frozenset("_-. ")
_LONGEST_LINE = 200


@lru_cache
def problem_with(name: str) -> str | None:
    """Return why a text is not a name, or None if it is one."""
    unknown = next((c for c in name if not (c in _PUNCTUATION or unicodedata.category(c)[0] in "LMN")), None)
    checks = (
        (not name, "it is empty"),
        (len(name) > LONGEST, f"it is longer than {LONGEST} characters"),
        (not name[:1].isalnum(), "it does not start with a letter or a digit"),
        (unknown is not None, f"it contains {unknown!r}"),
        (name.endswith((".", " ")), "it ends with a dot or a blank"),
        (unicodedata.normalize("NFC", name) != name, "it is not in Unicode normalization form C"),
        (name.partition(".")[0].casefold() in RESERVED, "it is reserved"),
    )
    return next((problem for wrong, problem in checks if wrong), None)


def valid_name(name: str) -> str:
    """Return a name; ValueError if it is not one."""
    if problem := problem_with(name):
        raise ValueError(f"{name!r} is not a valid name: {problem}")
    return name


def dotless(name: str) -> str:
    """Return a name as one part of a dotted name, such as that of a tensor: no two names become the same part."""
    return name.replace(".", "%2E")


def dotted(part: str) -> str:
    """Return the name that :func:`dotless` made into a part."""
    return part.replace("%2E", ".")


def valid_path(path: str) -> str:
    """Return a relative path of file names; ValueError if it is not one."""
    for part in path.split("/"):
        if problem := problem_with(part[1:] if part.startswith("_") else part):
            raise ValueError(f"{path!r} is not a valid relative path: {part!r}: {problem}")
    return path


def check_names(names: Iterable[str], what: str, file: object = None) -> None:
    """Raise a DataError if one of these names of a `what`, as "modality", is not a name."""
    for name in names:
        if problem := problem_with(name):
            raise DataError(
                f"this cannot be the name of a {what}: {problem}",
                file=str(file) if file else None,
                value=repr(name),
                hint=HINT,
            )


def valid_line(text: str) -> str:
    """Return one line of printable text; ValueError if it is not one."""
    if not text.strip() or len(text) > _LONGEST_LINE or not text.isprintable():
        raise ValueError(f"this is not a line of 1 to {_LONGEST_LINE} printable characters")
    return text


Name = Annotated[str, AfterValidator(valid_name)]
"""a name in a record"""
Line = Annotated[str, AfterValidator(valid_line)]
"""a text for people in a record: one printable line"""
RelativePath = Annotated[str, AfterValidator(valid_path)]
"""a relative path in a record"""


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256, or another 32 bytes, in lower-case hexadecimal"""


def now() -> datetime:
    """Return the current time in whole seconds of UTC, as records hold it."""
    return datetime.now(UTC).replace(microsecond=0)


def _whole_seconds_of_utc(time: datetime) -> datetime:
    if time.tzinfo is None or time.utcoffset() != timedelta(0) or time.microsecond:
        raise ValueError("times are whole seconds of UTC")
    return time.astimezone(UTC)


Time = Annotated[datetime, AfterValidator(_whole_seconds_of_utc)]


class Frozen(BaseModel):
    """Frozen, without unknown keys, infinities or NaN; the text below a field describes it in a JSON Schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        properties = handler.resolve_ref_schema(reference).get("properties", {})
        for name, text in describe_fields(cls).items():
            if (key := cls.model_fields[name].alias or name) in properties:
                properties[key]["description"] = text
        return reference


def describe_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a model. They are read from its source, which takes too long at import."""
    texts = dict[str, str]()
    for base in reversed(model.__mro__):
        if not issubclass(base, Frozen) or base is Frozen:
            continue
        body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for pair in pairwise(body):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return texts


class Record(Frozen):
    """A stored record, or a part of one."""

    def to_plain(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """Return the record as it is stored: indented JSON, keys in their order."""
        return to_json(self.to_plain())

    def to_bytes(self) -> bytes:
        """Return :meth:`to_json` in UTF-8."""
        return self.to_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes, what: str, *, file: Path | str | None = None, hint: str | None = None) -> Self:
        """Parse a stored record, as "deletion record"; a DataError, which names the key at fault, if it is none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise invalid(error, what, file=file, hint=hint) from error

    @classmethod
    def read(cls, file: Path, what: str, hint: str | None = None) -> Self:
        """Parse the record in a file; DataError if there is none."""
        try:
            data = file.read_bytes()
        except OSError as error:
            raise DataError(f"there is no readable {what}", file=file, hint=hint) from error
        return cls.from_bytes(data, what, file=file, hint=hint)


def invalid(
    error: ValidationError,
    what: str,
    *,
    file: Path | str | None = None,
    hint: str | None = None,
    kind: type[MbdError] = DataError,
) -> MbdError:
    """Return the error for a record that does not follow its schema."""
    problem, key, _ = first_problem(error)
    return kind(f"the {what} is not valid: {problem}", file=file, key=key or None, hint=hint)


def first_problem(error: ValidationError) -> tuple[str, str, str | None]:
    """Return the first problem, the key that has it, and the value there unless that is a mapping."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) if str(part).isprintable() else ascii(part) for part in first["loc"])
    value = None if isinstance(first["input"], dict) else repr(first["input"])
    return first["msg"].removeprefix("Value error, "), key, value


def json_schema(record: type[Record], **head: str) -> str:
    """Return the JSON Schema of a record, as `docs/schemas` holds it; `head` are further keys of the schema itself."""
    schema: Mapping[str, Any] = record.model_json_schema(by_alias=True, mode="serialization")
    return to_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **head, **schema})
