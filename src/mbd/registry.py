"""Extension points: sources, backbones, attacks, deletion methods and stores, each found by its name.

A registry maps a name to the one object that describes the thing. Built-in ones are listed at the end of this module by
import path; an installed package adds its own by an entry point:

    [project.entry-points."mbd.sources"]
    sheet = "mbd_sheet:SHEET"

The names come from the metadata of installed packages. An object is imported when it is used, so that `mbd --help` and
`mbd verify` load neither plug-ins nor heavy packages. A plug-in cannot replace a built-in.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from mbd.errors import MbdError, UsageError, extras_named
from mbd.records import first_problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mbd.attacks.attack import Attack
    from mbd.deletion.methods import Method
    from mbd.features.sources import Source
    from mbd.model.predictor import Backbone
    from mbd.storage.store import StoreScheme


class PluginError(MbdError):
    """An installed plug-in cannot be used."""


T = TypeVar("T")


def load(path: str) -> Any:  # noqa: ANN401 -- whatever is there
    """Return the object at the import path `PACKAGE.MODULE:NAME`."""
    module, _, name = path.partition(":")
    return attrgetter(name)(import_module(module))


def lazy(path: str) -> Callable[..., Any]:
    """Return a function that imports the one at `path`, `PACKAGE.MODULE:NAME`, when it is called."""

    def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        with extras_named():
            function = load(path)
        return function(*args, **options)

    return call


@dataclass(eq=False)
class Registry(Generic[T]):
    """The objects of one extension point, by name."""

    what: str
    """what the objects are, in errors: "source", "store" …"""
    group: str
    """group of entry points by which packages add theirs"""
    key: str
    """the parameter that names one"""
    described_by: str
    """import path of the class of the objects"""
    builtin: Mapping[str, str]
    """import path of each built-in object, by name"""
    by_path: str | None = None
    """import path of the object for every name `PACKAGE.MODULE:NAME`, where such names are allowed"""
    _loaded: dict[str, T] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Return every name, the built-in ones first."""
        return (*self.builtin, *sorted(self._plugins))

    def check(self, name: str) -> str:
        """Return `name`; a UsageError if nothing has it. Imports nothing."""
        if name in self.builtin or name in self._plugins or self.is_path(name):
            return name
        near = difflib.get_close_matches(name, self.names(), n=1)
        raise UsageError(
            f"there is no {self.what} named {name!r}",
            key=self.key,
            value=name,
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"installed: {', '.join(self.names())}; packages can add others (entry points {self.group})"
            + ("; or an import path PACKAGE.MODULE:NAME" if self.by_path else ""),
        )

    def is_path(self, name: str) -> bool:
        """Whether a name is an import path `PACKAGE.MODULE:NAME`, and those are allowed here."""
        module, _, member = name.partition(":")
        return bool(self.by_path) and all(part.isidentifier() for part in [*module.split("."), member])

    def get(self, name: str) -> T:
        """Return the object of this name.

        Raises:
            UsageError: Nothing has this name.
            PluginError: A plug-in cannot be imported, is no such object, or shares its name with another.

        """
        self.check(name)
        if name not in self._loaded:
            path = self.builtin.get(name) or (self.by_path if self.is_path(name) else None)
            self._loaded[name] = load(path) if path else self._load_plugin(name)
        return self._loaded[name]

    def provider(self, name: str) -> str:
        """Return name and version of the package that provides a plug-in; empty for a built-in or an import path."""
        return _packages(self._plugins[name]) if self.check(name) in self._plugins else ""

    def options(self, name: str, options: Mapping[str, Any], key: str) -> BaseModel | None:
        """Return `options` of a plug-in as its own settings; a UsageError below `key` where they do not fit.

        Those of an import path are not known here: they are arguments of what is called.
        """
        if self.is_path(name):
            return None
        built_in = self.check(name) in self.builtin
        settings: type[BaseModel] | None = None if built_in else getattr(self.get(name), "settings", None)
        if settings is None:
            if options:
                raise UsageError(f"the {self.what} {name} has no options", key=key, value=", ".join(options))
            return None
        try:
            return settings.model_validate(dict(options))
        except ValidationError as error:
            problem, option, value = first_problem(error)
            hint = f"options of {name}: {', '.join(settings.model_fields)}"
            raise UsageError(problem, key=f"{key}.{option}".rstrip("."), value=value, hint=hint) from error

    @cached_property
    def _plugins(self) -> "dict[str, list[EntryPoint]]":
        from importlib.metadata import entry_points  # noqa: PLC0415 -- slow, and built-in names need it not

        plugins: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            plugins.setdefault(entry.name, []).append(entry)
        for name in set(plugins) & set(self.builtin):
            raise PluginError(
                f"{_packages(plugins[name])} provides a {self.what} named {name!r}, which is built in",
                hint="uninstall the package, or ask its authors for another name",
            )
        return plugins

    def _load_plugin(self, name: str) -> T:
        entries = self._plugins[name]
        if len(entries) > 1:
            raise PluginError(
                f"several packages provide a {self.what} named {name!r}: {_packages(entries)}",
                key=self.key,
                value=name,
                hint="uninstall all but one of them",
            )
        try:
            plugin = entries[0].load()
        except Exception as error:  # an import runs the plug-in's code, which may raise anything
            raise PluginError(
                f"the {self.what} {name!r} of {_packages(entries)} cannot be imported: {type(error).__name__}: {error}",
                value=entries[0].value,
                hint="install what the package needs, or another version of it",
            ) from error
        if not isinstance(plugin, load(self.described_by)):
            raise PluginError(
                f"the {self.what} {name!r} of {_packages(entries)} is a {type(plugin).__name__}, "
                f"not a {self.described_by.replace(':', '.')}",
                value=entries[0].value,
                hint="see docs/extending.md",
            )
        return plugin  # type: ignore[no-any-return]


def _packages(entries: "list[EntryPoint]") -> str:
    return ", ".join(sorted(f"{e.dist.name} {e.dist.version}" if e.dist else e.value for e in entries))


_SOURCES = ("synthetic", "npz", "table", "mmsa", "csd", "iemocap", "media")
_ATTACKS = ("pathway", "whitebox", "blackbox", "reconstruction", "membership", "relearn", "reattach", "copies")

SOURCES: "Registry[Source]" = Registry(
    "source",
    "mbd.sources",
    "features.source.kind",
    "mbd.features.sources:Source",
    {name: f"mbd.features.sources.{name}:SOURCE" for name in _SOURCES},
)
BACKBONES: "Registry[Backbone]" = Registry(
    "backbone",
    "mbd.backbones",
    "model.backbone",
    "mbd.model.predictor:Backbone",
    {"joint": "mbd.model.predictor:JOINT", "lattice": "mbd.model.predictor:LATTICE"},
    by_path="mbd.model.predictor:MODULE",
)
METHODS: "Registry[Method]" = Registry(
    "deletion method",
    "mbd.deletion_methods",
    "deletion.method",
    "mbd.deletion.methods:Method",
    {name: f"mbd.deletion.methods:{name.upper()}" for name in ("surgery", "certified", "exact")},
)
ATTACKS: "Registry[Attack]" = Registry(
    "attack",
    "mbd.attacks",
    "attacks.also",
    "mbd.attacks.attack:Attack",
    {name: f"mbd.attacks.{name}:ATTACK" for name in _ATTACKS} | {"blackbox": "mbd.attacks.whitebox:OUTPUTS"},
)
STORES: "Registry[StoreScheme]" = Registry(
    "store",
    "mbd.stores",
    "store.url",
    "mbd.storage.store:StoreScheme",
    {
        name: f"mbd.storage:{kind}"
        for name, kind in (("file", "FILE"), ("s3", "S3"), ("https", "HTTP"), ("http", "HTTP"))
    },
)


def scheme_of(url: str) -> str:
    """Return the scheme of a store's URL; a UsageError if there is no such store."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise UsageError("a store is named by a URL", key="store.url", value=url, hint="write file://FOLDER")
    return STORES.check(scheme)
