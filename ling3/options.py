"""Command-line options of a verb: argparse, with mistakes as StartError."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ling3.errors import StartError


class OptionParser(argparse.ArgumentParser):
    """An ArgumentParser whose mistakes are one StartError that tells what is wrong and where help is."""

    def error(self, message: str) -> NoReturn:
        raise StartError(f"{message} (see {self.prog} --help)")
