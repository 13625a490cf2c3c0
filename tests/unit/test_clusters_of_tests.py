"""What clusters on one machine refuse before they start anything."""

from __future__ import annotations

import os

import pytest

from dpa.testing import LocalCluster
from experiments.hosts import HostsError, NamespaceCluster


@pytest.mark.parametrize("kind", [LocalCluster, NamespaceCluster])
def test_a_cluster_has_a_node_an_address_in_its_block_and_a_head_that_stays(
    kind: type[LocalCluster] | type[NamespaceCluster],
) -> None:
    with pytest.raises(ValueError, match="at least one node"):
        kind({})
    cluster = kind({"head": 1, "other": 1})
    with pytest.raises(RuntimeError, match="in a `with` block alone"):
        _ = cluster.address
    with pytest.raises(ValueError, match="head is the head"):
        cluster.remove("head")
    with pytest.raises(KeyError, match="third"):
        cluster.remove("third")


@pytest.mark.parametrize("name", ["", "../one", "a b", "switch", "ä"])
def test_a_host_has_a_name_that_a_namespace_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a host"):
        NamespaceCluster({name: 1})


def test_a_cluster_of_hosts_says_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HostsError, match="need the program `ip`, of iproute2"):
        NamespaceCluster({"one": 1}).__enter__()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert NamespaceCluster.lacking() == "network namespaces need root"
