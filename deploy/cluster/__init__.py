"""A one-node Kubernetes of real parts for this machine: built from pinned sources, run in namespaces of its own."""
