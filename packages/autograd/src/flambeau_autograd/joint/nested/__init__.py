"""Higher-order operators: their bodies as functional graphs, and the same operators over those, forward and backward."""
