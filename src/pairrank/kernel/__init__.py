"""The algorithm's mathematics as pure functions: arrays in, arrays out, no state."""
