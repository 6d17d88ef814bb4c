"""Sweeps: grids of runs, for anybody's study. What is the FIRMA paper's own is in `firma.paper`.

A cell is one run (`cells`). The runner runs the cells that are missing (`runner`), the store keeps their results on
disk (`store`, `ring_savings`), and `statistics` turns them into mean, deviation and standard error over seeds.
"""
