"""Data sets and how they are split among clients.

dataset.py loads a data set by name, by file or from arrays. catalogue.py, download.py, formats.py and cache.py are
about the public sets; user_arrays.py, user_files.py, image_folder.py and hugging_face.py read the user's own data;
scenarios.py and partition.py split a data set among clients, standardise.py scales what each of them has, exported.py
writes a split for other programs and reads it back.
"""
