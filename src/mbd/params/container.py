"""What parameters mean in a container: paths that are not set lead to where the platform mounts things.

A volume or a secret that `platform` names has a folder there (`platform.state_path` …). :data:`MOUNTED` says which
parameters lead into which of them; what has been set to something else stays.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from mbd.params.resolve import Params

MOUNTED = {
    "state_claim": {
        "deletion.ledgers": "{state_path}",
        "certificate.private": "{state_path}/private",
        "purge.tombstones": "{state_path}/tombstones",
        "features.source.media.cache": "{state_path}/media",
    },
    "trust_config": {"certificate.trust": "{trust_path}/trust.json"},
    "keys_secret": {
        "certificate.signers": "file:{keys_path}/signer.pem",
        "certificate.log_signer": "file:{keys_path}/log.pem",
    },
    "lineage_secret": {"certificate.lineage_key": "{lineage_path}/lineage.key"},
    "data_keys_claim": {"shredding.keys": "{data_keys_path}"},
    "wrapper_secret": {"shredding.wrapper": "file:{wrapper_path}/shredding.kek"},
}
"""what `platform` names: {parameter: where it leads, if that is mounted}"""
_PLAIN = "features.source.media.cache"
"""plain vectors, which are kept nowhere with crypto-shredding"""


def in_container(params: Params) -> Params:
    """Return the parameters with every default path to something mounted as it is in a container."""
    return params.having(dict(_mounted(params)))


def _mounted(params: Params) -> Iterator[tuple[str, Any]]:
    defaults, paths = Params(), params.platform.model_dump()
    for source, parameters in MOUNTED.items():
        for key, path in parameters.items():
            if key == _PLAIN and params.shredding.enabled:
                continue
            default = attrgetter(key)(defaults)
            if paths[source] and attrgetter(key)(params) == default:
                value = path.format(**paths)
                yield key, (value,) if isinstance(default, tuple) else value
