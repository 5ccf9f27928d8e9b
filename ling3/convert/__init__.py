"""Makes packages of checkpoints in the public layout."""

from ling3.convert.command import main
from ling3.convert.conversion import convert

__all__ = ["convert", "main"]
