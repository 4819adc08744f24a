"""Tests of the programs that prepare a cluster."""
