"""Click logs of any size: ingest, check, fit, and priors from what is known already."""

from pairrank.logs.clicklog import Writer
from pairrank.logs.ingest import Ingested, ingest
from pairrank.logs.newton import Fit, fit, spread, validate
from pairrank.logs.problems import Problems, Reason

__all__ = ["Fit", "Ingested", "Problems", "Reason", "Writer", "fit", "ingest", "spread", "validate"]
