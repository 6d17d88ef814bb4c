"""A Flower app: handwritten digits, split unevenly among sites."""
