"""Connections as bytes and messages: codec, session, handshake, limits, values; no sockets."""
