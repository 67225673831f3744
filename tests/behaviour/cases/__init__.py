"""Small programs, one feature each: run plainly and compiled, they must do the same."""
