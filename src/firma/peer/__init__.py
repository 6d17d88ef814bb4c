"""A real peer: identity, ring file, wire format, gRPC transport, node and checkpoints. Needs the extra `peer`."""
