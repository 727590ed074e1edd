"""The log and the models that it makes."""
