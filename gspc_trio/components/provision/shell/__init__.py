"""Local processes, SSH, strategies of installed packages; the hardware of a host."""
