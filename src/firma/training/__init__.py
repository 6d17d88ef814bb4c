"""Local training of clients: by autograd for any model and recipe, by compiled kernels for the plain case."""
