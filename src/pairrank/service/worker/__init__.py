"""What one rank worker holds: models, the writer of its store, metrics."""
