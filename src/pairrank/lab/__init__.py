"""The laboratory: many runs at once, and what to make of them."""
