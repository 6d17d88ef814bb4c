"""Engines run a federation: in this process, or on a cluster."""
