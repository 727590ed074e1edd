"""``python -m pairrank.service``: `pairrank serve` with every setting from the environment (PAIRRANK_PORT=8001)."""

import sys

from pairrank.service.settings import load_settings
from pairrank.service.supervisor import serve

sys.exit(serve(load_settings({})))
