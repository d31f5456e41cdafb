"""Two campaigns, or two cells in turns: what changed, and whether that is more than noise."""
