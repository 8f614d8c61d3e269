"""What tests compare folders by."""

from pathlib import Path

from mbd.files import canonical_digest, file_digests, sha256_file


def path_digest(path: Path) -> str:
    """Return the digest of a file, or of a folder: the canonical digest of its files' digests without `step.json`."""
    return canonical_digest(file_digests(path)) if path.is_dir() else sha256_file(path)
