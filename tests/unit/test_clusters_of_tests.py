"""What clusters on one machine refuse before they start anything."""

from __future__ import annotations

import pytest

from dpa.testing import LocalCluster


def test_a_cluster_has_a_node_an_address_in_its_block_and_a_head_that_stays() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        LocalCluster({})
    cluster = LocalCluster({"head": 1, "other": 1})
    with pytest.raises(RuntimeError, match="in a `with` block alone"):
        _ = cluster.address
    with pytest.raises(ValueError, match="head is the head"):
        cluster.remove("head")
    with pytest.raises(KeyError, match="third"):
        cluster.remove("third")
