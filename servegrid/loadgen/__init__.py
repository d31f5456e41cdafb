"""Load generators, the points that they measure, and how far a point can be trusted."""
