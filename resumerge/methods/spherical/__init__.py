"""Methods that interpolate along arcs or on the sphere. One file for each method."""
