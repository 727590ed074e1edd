"""Data sets: LETOR files as they are found, and synthetic ones by name. `load` is the door to all of them."""

from pairrank.data.dataset import Dataset
from pairrank.data.letor import write_letor
from pairrank.data.loading import load
from pairrank.data.normalize import Normaliser

__all__ = ["Dataset", "Normaliser", "load", "write_letor"]
