"""Which values the forward keeps for the backward, and the two graphs that follow from it."""
