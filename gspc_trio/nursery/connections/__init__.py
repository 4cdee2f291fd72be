"""Websockets and pairs in memory: listening, dialling, proof of identity, calls."""
