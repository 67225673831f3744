// Whether tensors are those of before, unchanged.
#pragma once

#include "compat.hpp"

namespace flambeau {

// Adds the type `Watch` to the module.
bool add_watch(PyObject* module);

}  // namespace flambeau
