"""What travels between members, in bytes: messages, heartbeats and control messages. No sockets."""
