"""A member at work: its decisions in one pure machine, and the threads, disk and training around it."""
