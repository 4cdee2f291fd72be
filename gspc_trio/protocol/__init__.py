"""SPEAKS: values, messages, codec, session; no sockets."""
