"""One room for each component: messages, pure machine, ``shell/`` with trio; ``embed`` wires them all."""
