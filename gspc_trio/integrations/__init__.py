"""Bridges: tools of others that compute on a run-time system; each is imported by whoever asks for it"""
