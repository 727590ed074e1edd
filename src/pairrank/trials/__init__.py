"""Proof and safety: two rankings in one list, verdicts that may be looked at any time, estimates from a log, launches.

Pure functions and small values, of which the service and the laboratory make the same use. Nothing here draws, keeps
time or stores: uniform numbers, outcomes and states are handed in, and the same ones give the same bits.
"""
