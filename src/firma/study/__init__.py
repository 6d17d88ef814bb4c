"""The whole study: which runs it is made of, where they are kept, what the paper claims and what follows for users."""
