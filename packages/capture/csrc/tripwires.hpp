// Code that must not run on a thread for a while: a call of it raises instead, before anything of it has run.
#pragma once

#include "thread_state.hpp"

namespace flambeau {

// From now on a call of a function with one of these codes is a call of what the dict has for it; None: no code is
// watched. Gives what was set before.
PyObject* set_tripwires(PyObject* wires);

// Calls what stands for the code of a frame that is about to start, if it is watched; whether that raised, and the
// frame does not start.
bool is_tripped(ThreadState& state, PyCodeObject* code);

}  // namespace flambeau
