"""From a traced frame to new code objects: the replacement of the frame's code and its resume functions. Start at `assemble.py`."""
