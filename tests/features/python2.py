"""Pickles as Python 2 and numpy 1 wrote them, which is how the older feature files were made."""

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar

_PurePickler: Any = pickle._Pickler


class _Python2Pickler(_PurePickler):  # type: ignore[misc]
    """Writes bytes and ASCII text as the one string type of Python 2."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(_PurePickler.dispatch)

    def _save_string(self, value: bytes | str) -> None:
        if isinstance(value, str) and not value.isascii():
            _PurePickler.dispatch[str](self, value)
            return
        data = value if isinstance(value, bytes) else value.encode("ascii")
        if self.proto == 0:
            self.write(b"S" + repr(data)[1:].encode("ascii") + b"\n")
        elif len(data) < 256:
            self.write(b"U" + struct.pack("<B", len(data)) + data)
        else:
            self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch[bytes] = _save_string
    dispatch[str] = _save_string


def python2_dumps(value: object, protocol: int = 2) -> bytes:
    """Return the pickle that Python 2 and numpy 1 would have written."""
    stream = io.BytesIO()
    _Python2Pickler(stream, protocol).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")
