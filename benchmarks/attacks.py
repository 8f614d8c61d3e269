"""Claims about the attack suite, on data of MOSI's size, in CPU time on one thread.

1. The whole default suite (every adversary on the models before and after a deletion and on the reference, once more
   after rounding and pruning, with all intervals) takes no longer than training the joint model.
2. It takes well under a minute.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from mbd.attacks.audit_input import open_audit
from mbd.attacks.suite import Audit, run_suite
from mbd.params import load_params
from mbd.steps import delete, features, train

GONE = "audio"


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time, in which other processes on the machine have no say."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    params = load_params(None, ["features.source.preset=mosi", "training.threads=1"])
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        root = Path(temporary)
        params = params.model_copy(
            update={"deletion": params.deletion.model_copy(update={"ledgers": str(root / "ledgers")})}
        )
        features.run(params, root / "features")
        train.run(params, root / "features", root / "reference", (GONE,))
        training = seconds(lambda: train.run(params, root / "features", root / "model"))
        delete.run(params, root / "features", root / "model", [GONE], [], root / "deleted")
        case = open_audit(root / "features", root / "model", root / "deleted", root / "reference", [GONE])
        audits: list[Audit] = [run_suite(case, params.attacks)]  # first calls and imports
        start = time.perf_counter()
        suite = seconds(lambda: audits.append(run_suite(case, params.attacks)))
        waited = time.perf_counter() - start
    record, parts = audits[-1].record, audits[-1].seconds
    print(f"{len(record.attacks)} measures of {len({a.attack for a in record.attacks})} attacks: {record.decision}")
    print(f"training the joint model: {training:.1f} s")
    print(f"the suite: {suite:.1f} s, {waited:.1f} s on the clock (claim: well under 60)")
    print(f"ratio suite / training: {suite / training:.2f} (claim: at most 1)")
    for name, duration in sorted(parts.items(), key=lambda part: -part[1])[:5]:
        print(f"  {name}: {duration / sum(parts.values()):.0%} of the suite")


if __name__ == "__main__":
    main()
