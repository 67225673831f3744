"""Symbolic execution of one frame: bytecode in, `FrameResult` out."""
