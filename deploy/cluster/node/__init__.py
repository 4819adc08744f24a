"""The node: its namespaces, its control groups, its configuration and the processes in it."""
