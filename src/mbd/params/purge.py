"""Parameters of the purge: where copies may lie besides the places that are known anyway, and what goes with them."""

from mbd.params.base import Settings
from mbd.params.operations import Url
from mbd.records import Digest


class PurgeSettings(Settings):
    """Removing every copy of the old weights, and keeping them away."""

    features: bool = False
    """whether the deleted modality's feature files and cached vectors go, too"""
    also: tuple[Digest, ...] = ()
    """SHA-256 of further files that go: exports, dumps, models of other experiments"""
    keys: bool = False
    """whether the deleted modality's data keys are destroyed: no encrypted model that took it can be read then"""
    folders: tuple[Url, ...] = ()
    """further places to search: folders, file:// or s3:// URLs (model registries, exports, backups, clones)"""
    kfp_root: str = "build/kfp"
    """folder with the outputs of pipelines that ran on this machine"""
    shared_caches: bool = False
    """whether to remove from a DVC cache that other repositories may use, too"""
    tombstones: str | None = "build/tombstones"
    """digests that no step may read or write: a file, or the URL of a store; null: steps do not look"""
