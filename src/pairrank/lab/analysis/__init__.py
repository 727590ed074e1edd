"""What runs say: curves with intervals, corrected tests, the paper's claims and quality."""
