"""Data sets and how they are split among clients.

dataset.py loads a data set by name, by file or from arrays. catalogue.py, download.py, formats.py and cache.py are
about the public sets; user_arrays.py and user_files.py read the user's own data; scenarios.py and partition.py split a
data set among clients.
"""
