"""Programs about rules of Python: `make() -> (function, calls)`; a call is the arguments, or a function that gives them."""
