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

// The first argument that is a module: the one whose method starts, or the one that the rest of a loop's round works
// with. NULL for any other frame. All modules of a class share their methods' code, and what is decided for one of them
// (entries, their limit, to leave a frame alone) is not decided for the others.
inline const void* owner_of(const FrameView& view) {
  for (Py_ssize_t at = 0; at < view.count; ++at) {
    if (view.arguments[at] != nullptr && is_module(view.arguments[at])) return view.arguments[at];
  }
  return nullptr;
}

// Whether a frame of `code` runs as it is, so that `forward` (and each hook) is what gets compiled. A region's own
// module is the exception: its call is compiled as one, hooks included.
inline bool is_passed_through(PyObject* code, PyObject* self, PyObject* root) {
  const ModuleCall& call = module_call();
  return code == call.inner || (code == call.entered && self != root);
}

}  // namespace flambeau
