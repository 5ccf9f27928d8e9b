"""Qualifies the machine and reports what it found; used by `cli` alone."""

from ling3.check.host import Check, Host, inspect_host, raise_fd_limit, use_big_cores

__all__ = ["Check", "Host", "inspect_host", "raise_fd_limit", "use_big_cores"]
