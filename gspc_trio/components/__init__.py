"""Components: one room each, with messages, pure machine and ``shell/`` (trio); ``embed`` wires them."""
