"""A real peer: identity, ring file, wire format, gRPC transport, node and checkpoints. Needs the extra `peer`."""

import os

# gRPC reads this when it is first imported. It speaks TLS 1.2 and 1.3, and the list names suites of 1.2 only. This
# suite needs an RSA certificate; ours are all P-256, so no handshake of 1.2 can succeed and 1.3 is what remains.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES128-GCM-SHA256"
# Else gRPC writes a raw line on stderr for every stranger that fails a handshake. They are counted (handshakes_failed),
# and failures of members are reported by FIRMA. GRPC_VERBOSITY=info in the environment brings the lines back.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
