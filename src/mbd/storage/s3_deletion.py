"""Removing objects of a bucket by the thousand, with a reason for each that stays."""

from mbd.storage.s3_client import MISSING, pause
from mbd.storage.s3_objects import Bucket
from mbd.storage.store import Lock, StoredObject

MOST_AT_ONCE = 1000
_PASSING = {"InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "OperationAborted"}

_Place = tuple[str, str | None]


def delete_batch(bucket: Bucket, prefix: str, batch: list[StoredObject]) -> dict[StoredObject, str]:
    """Remove at most a thousand objects or versions; return the reason for each that stayed."""
    waiting: dict[_Place, StoredObject] = {(prefix + each.name, each.version): each for each in batch}
    stayed: dict[StoredObject, str] = {}
    for failures in range(1, bucket.settings.retries + 2):
        refused = _ask(bucket, list(waiting))
        again = {}
        for place, (code, message) in refused.items():
            if code in _PASSING and failures <= bucket.settings.retries:
                again[place] = waiting[place]
            elif code not in MISSING:
                stayed[waiting[place]] = _reason(bucket, place, code, message)
        if not again:
            break
        waiting = again
        pause(failures)
    return stayed


def in_words(lock: Lock) -> str:
    """Return a lock as a reason."""
    return f"under Object Lock ({lock.mode}) until {lock.until.isoformat(timespec='seconds')}"


def _ask(bucket: Bucket, places: list[_Place]) -> dict[_Place, tuple[str, str]]:
    if not places:
        return {}
    wanted = [{"Key": key} | ({"VersionId": version} if version else {}) for key, version in places]
    answer = bucket.client.delete_objects(Bucket=bucket.name, Delete={"Objects": wanted, "Quiet": True})
    return {
        (error["Key"], error.get("VersionId") or None): (error["Code"], error.get("Message", ""))
        for error in answer.get("Errors", [])
    }


def _reason(bucket: Bucket, place: _Place, code: str, message: str) -> str:
    key, version = place
    state = bucket.head(key, version) if version else None
    if state and state.lock:
        return in_words(state.lock)
    return ": ".join(dict.fromkeys(filter(None, (code, message))))
