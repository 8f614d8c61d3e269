"""Probing of random architectures agrees with what is known of them by construction, entry by entry."""

import os

import numpy as np
import pytest

from mbd.model.contract import Architecture
from mbd.model.probing import probe
from tests.model.random_graphs import Graph, random_shapes


def check_graph(seed: int) -> int:
    """Probe one random architecture; return how many entries are audio's own."""
    rng = np.random.default_rng([seed, 1])
    shapes = random_shapes(rng)
    graph = Graph(shapes, 2, seed=seed)
    branches = sorted({int(i) for i in rng.integers(len(graph.nodes), size=2)}) if rng.random() < 0.5 else []
    shared = [i for i, node in enumerate(graph.nodes) if sum(node is other for other in graph.nodes) > 1]
    branches = [i for i in branches if i not in shared]
    named = {"audio": [f"nodes.{i}" for i in branches]} if branches else {}
    found = probe(Architecture(Graph, shapes, 2, {"seed": seed}, named, name=f"graph {seed}"), "audio")
    alive, heard = graph.alive(audio=False, branches=branches), graph.alive(audio=True)
    own = 0
    for name, part in found.tensors.items():
        assert not (alive[name] & ~part.alive).any(), f"seed {seed}: {name} is alive and was taken for audio's own"
        missed = heard[name] & ~alive[name] & part.alive
        assert not missed.any(), f"seed {seed}: {name} is audio's own and was left"
        assert found.unused.get(name, 0) == (part.alive & ~alive[name]).sum(), f"seed {seed}: {name}"
        own += int((~part.alive).sum())
    return own


def test_no_living_entry_is_called_dead_and_no_dead_one_is_missed() -> None:
    assert sum(check_graph(seed) > 0 for seed in range(30)) > 9


@pytest.mark.slow
def test_the_same_for_many_architectures() -> None:
    """MBD_GRAPHS=10000 for as many; a thousand take about a minute and a half."""
    last = int(os.environ.get("MBD_GRAPHS", "1500"))
    assert sum(check_graph(seed) > 0 for seed in range(30, last)) > 0.3 * (last - 30)
