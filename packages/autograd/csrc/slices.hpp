// What autograd's nodes for writes through views stand for.
#pragma once

#include "compat.hpp"

namespace flambeau {

// write_behind(node) -> the node of the write itself, which `next_functions` does not show; None for any other node,
// and where it was freed.
PyObject* write_behind(PyObject* module, PyObject* node);

}  // namespace flambeau
