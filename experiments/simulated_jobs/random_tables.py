"""Random first tables for the stages of simulated jobs, as if planned from samples, right or wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from dpa.measure.load import KeySample
from dpa.protocol.graph import Graph, Stage
from dpa.routing.hashing import Hashes

_EXPONENTS = [0.0, 1.2, 3.0]


def with_random_first_tables(graph: Graph, seed: int, hashes: Hashes) -> Graph:
    """The graph, of which about half of the stages that can begin with a planned table do. Their samples have some of
    the keys with these hashes, and some others."""
    draw = random.Random(f"first tables of {seed}")
    return replace(graph, stages=tuple(_drawn(stage, draw, hashes) for stage in graph.stages))


def _drawn(stage: Stage, draw: random.Random, hashes: Hashes) -> Stage:
    exponent, others = draw.choice(_EXPONENTS), draw.randint(1, 30)
    keys = [one for one in hashes.tolist() if draw.random() < 0.8] + [draw.randrange(2**32) for _ in range(others)]
    draw.shuffle(keys)
    if draw.random() < 0.5 or not stage.balance.plans_first_table or not stage.grouping.is_ring:
        return stage
    found, first = np.unique(np.array(keys, dtype=np.uint32), return_index=True)
    sample = KeySample(found, 1000 / (first + 1.0) ** exponent, draw.choice([10.0, 1000.0]))
    names = {hashed: f"hash {hashed}" for hashed in found.tolist()}
    planned = stage.balance.planned(stage.tasks, sample, names, may_split=not stage.migrates)
    return replace(stage, first=planned)
