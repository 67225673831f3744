// The program's hooks on nodes of autograd that come to be (torch 2.15 and later).
#pragma once

#include <Python.h>

namespace flambeau {

// Take the hooks of this thread away; what they were, None where there are none.
PyObject* take_node_hooks();

// Put back what `take_node_hooks` gave.
void put_back_node_hooks(PyObject* taken);

}  // namespace flambeau
