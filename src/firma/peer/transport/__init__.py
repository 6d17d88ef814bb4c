"""Mutual TLS and gRPC: the server that takes what members send, the client and the queue that send it."""
