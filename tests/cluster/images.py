"""Container images made by hand: one static program on nothing else, as an archive that containerd imports."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def scratch_image(program: Path, name: str, archive: Path) -> None:
    """Write an image archive with `program` as its only file and entry point, for a user that is not root."""
    layer = _tar({f"{program.name}": program.read_bytes()}, mode=0o755)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    archive.write_bytes(_tar({**{key: text.encode() for key, text in files.items()}, "layer.tar": layer}))


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
