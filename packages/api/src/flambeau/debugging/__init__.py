"""Finding what is at fault: results compared with eager, graphs kept and shrunk, stages left out one by one.

`compare.py` judges results, `repro.py` keeps graphs that fail, `trial.py` tries a graph in a process of its own, `reduce.py` and `minify.py` shrink
one, `bisect.py` names the stage, `verify.py` compares a sample of calls while a program runs.
"""
