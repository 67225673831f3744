"""What a program adds to the compiler: lowerings and decompositions of its operators, replacements of what it computes.

`table.py` has what is registered, and is loaded for the key of a graph; the other modules come with the compiler.
"""
