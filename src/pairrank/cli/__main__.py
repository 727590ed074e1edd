"""``python -m pairrank.cli``."""

import sys

from pairrank.cli import main

sys.exit(main())
