"""One trace of forward and backward: the graph replayed on fakes, differentiated, and what belongs to the backward."""
