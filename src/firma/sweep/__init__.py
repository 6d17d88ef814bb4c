"""Sweeps: grids of runs, for anybody's study. What is the FIRMA paper's own is in `firma.paper`.

A cell is one run (`cells`). A grid file describes them (`grid`), the runner runs those that are missing (`runner`), the
store keeps their results on disk (`store`, `ring_savings`), and `result_folders` reads results from disk, whatever
wrote them. `result_table` is the shape of the paper's study: every metric over seeds, by data set, scenario and method.
"""
