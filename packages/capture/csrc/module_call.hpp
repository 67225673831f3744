// nn.Module's own call machinery: frames between a module's call and its `forward`, whose code all modules share.
#pragma once

#include "compat.hpp"
#include "frame_view.hpp"

namespace flambeau {

struct ModuleCall {
  PyTypeObject* type = nullptr;    // torch.nn.Module
  PyObject* entered = nullptr;     // the code of `Module.__call__`
  PyObject* inner = nullptr;       // the code of what it calls
};

// Set once, when the package is imported; the references are kept for good.
inline ModuleCall& module_call() {
  static ModuleCall call;
  return call;
}

inline bool is_module(PyObject* object) {
  return module_call().type != nullptr && PyType_IsSubtype(Py_TYPE(object), module_call().type);
}

// Whether a frame of `code` runs as it is, so that `forward` (and each hook) is what gets compiled. A region's own
// module is the exception: its call is compiled as one, hooks included.
inline bool is_passed_through(PyObject* code, PyObject* self, PyObject* root) {
  const ModuleCall& call = module_call();
  return code == call.inner || (code == call.entered && self != root);
}

}  // namespace flambeau
