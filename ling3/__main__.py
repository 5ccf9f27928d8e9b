"""`python -m ling3`."""

import sys

from ling3.cli import main

sys.exit(main())
