// The table of recordings of one program: which one fits a call, and playing it, without entering the interpreter.
// Its twin in Python, and the story, is flambeau_runtime/graphs/table_py.py.
#pragma once

#include "compat.hpp"

namespace flambeau {

// Add the type RecordingTable to the module; false with a Python exception set.
bool add_recording_table(PyObject* module);

}  // namespace flambeau
