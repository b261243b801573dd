"""Methods that interpolate along arcs or on the sphere."""
