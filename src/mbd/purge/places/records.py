"""Small files that DVC keeps under their MD5, read from wherever they are: records of steps, listings of folders."""

from collections.abc import Callable, Iterable
from pathlib import Path

from mbd.errors import MbdError
from mbd.purge.places.buckets import BucketPlace
from mbd.purge.places.folders import Folder
from mbd.purge.places.place import Place
from mbd.storage.store import NotThereError, Store

_LAYOUTS = ("files/md5/", "")
"""of DVC 3, and of those before it"""
_LARGEST = 1 << 26


def object_reader(places: Iterable[Place]) -> Callable[[str], bytes | None]:
    """Return a function that reads what is kept under an MD5, from the first place that has it."""
    places = list(places)
    folders = [place.root for place in places if isinstance(place, Folder) and place.by_name]
    stores = [place.store for place in places if isinstance(place, BucketPlace) and place.by_name]

    def read(md5: str) -> bytes | None:
        names = [f"{layout}{md5[:2]}/{md5[2:]}" for layout in _LAYOUTS]
        found = (_from_folder(folder / name) for folder in folders for name in names)
        content = next((content for content in found if content is not None), None)
        for store in list(stores) if content is None else ():
            try:
                content = _from_store(store, names)
            except MbdError:
                stores.remove(store)  # that it cannot be read, its own search will tell
            if content is not None:
                break
        return content

    return read


def _from_folder(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST else None
    except OSError:
        return None


def _from_store(store: Store, names: list[str]) -> bytes | None:
    for name in names:
        try:
            return store.read(name)
        except NotThereError:
            continue
    return None
