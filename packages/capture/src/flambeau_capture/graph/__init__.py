"""The traced graph and everything a traced frame hands to the rewriter."""
