"""A mutational fuzzer: deterministic for a seed, with a limit on time and memory for each input."""

import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np

from mbd.errors import MbdError
from mbd.randomness import stream
from tests.fuzz.targets import TARGETS

SECONDS_FOR_ONE = 20
GIBIBYTE = 1 << 30
TIMES_THE_INPUT = 4


@dataclass
class FuzzReport:
    """What a run found."""

    target: str
    inputs: int = 0
    accepted: int = 0
    largest: int = 0
    """bytes of the largest input"""
    grown: int = 0
    """bytes by which the process grew"""
    findings: list[str] = field(default_factory=list)

    @property
    def within_memory(self) -> bool:
        """Whether the process grew by at most four times the largest input and one GiB."""
        return self.grown <= TIMES_THE_INPUT * self.largest + GIBIBYTE

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.inputs} inputs, {self.accepted} accepted, {len(self.findings)} findings, "
            f"grown by {self.grown >> 20} MiB, largest input {self.largest >> 10} KiB"
        )


def fuzz(
    name: str, *, inputs: int | None = None, seconds: float | None = None, seed: int = 0, most: int = 5
) -> FuzzReport:
    """Give a parser changed inputs until a number or a time is reached, or `most` findings were made."""
    target, report, draw = TARGETS[name], FuzzReport(name), stream(seed, "fuzz", name)
    seeds = target.seeds()
    corpus, end, before = list(seeds), time.monotonic() + (seconds or np.inf), _peak()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / target.file
        while report.inputs < (inputs or np.inf) and time.monotonic() < end and len(report.findings) < most:
            content = target.mutate(corpus[int(draw.integers(len(corpus)))], draw)
            report.largest = max(report.largest, len(content))
            file.write_bytes(content)
            report.inputs += 1
            try:
                with _at_most(SECONDS_FOR_ONE):
                    target.parse(file)
            except MbdError as error:
                str(error).encode()  # what cannot be printed is a finding as well
            except Exception:
                report.findings.append(traceback.format_exc(limit=-6))
                Path(f"fuzz-{name}-{len(report.findings)}").write_bytes(content)
            else:
                report.accepted += 1
                if len(corpus) < 50 and draw.random() < 0.2:
                    corpus.append(content)
    report.grown = max(0, _peak() - before)
    return report


def limit_memory(name: str) -> None:
    """Make allocations fail beyond what is there now, four times an input of 16 MiB, and one GiB."""
    TARGETS[name].seeds()
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + TIMES_THE_INPUT * (16 << 20) + GIBIBYTE,) * 2)


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"one input took more than {seconds} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(name: str, seconds: str, seed: str = "0") -> None:
    """Fuzz one parser for some seconds in this process, whose memory is limited."""
    limit_memory(name)
    report = fuzz(name, seconds=float(seconds), seed=int(seed))
    print(report)
    for finding in report.findings:
        print(finding)
    sys.exit(bool(report.findings) or not report.within_memory)


if __name__ == "__main__":
    main(*sys.argv[1:])
