"""θ̂ and its curvature, kept up as pairs come in."""
