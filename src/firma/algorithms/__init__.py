"""The algorithms behind the methods of the table: one module each, all written against `firma.training.algorithm`."""
