"""Ray nodes on hosts of their own, in network namespaces of this machine."""

from experiments.hosts.cluster import NamespaceCluster
from experiments.hosts.network import HostsError, InterfaceBytes

__all__ = ["HostsError", "InterfaceBytes", "NamespaceCluster"]
