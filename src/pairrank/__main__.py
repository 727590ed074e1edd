"""``python -m pairrank``."""

import sys

from pairrank.cli import main

sys.exit(main())
