"""What stands for a Python object while a frame is traced; `base.Value` is the root, `interp/wrapping.py` makes one of a real object."""
