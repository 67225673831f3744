"""CPython bytecode: code object to instructions and back, and what can be read off instructions. Start at `normalise.py`."""
