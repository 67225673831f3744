// Whose frame it is, where many have one code: what is decided for one owner (entries, their limit, to leave a frame
// alone) is not for others.
#pragma once

#include <cstdint>

#include "compat.hpp"
#include "frame_view.hpp"
#include "module_call.hpp"

namespace flambeau {

// By address alone: nobody's is 0.
using Owner = std::uintptr_t;

// Decorators on decorators are told apart so deep; a function may also be in its own closure.
constexpr int kOwnerDepth = 4;

inline Owner mixed(Owner first, Owner second) { return (first ^ (second >> 7)) * 0x9E3779B97F4A7C15ull + second; }

Owner owner_in_closure(PyObject* closure, int depth);

// What stays the same however often the object is made anew: of a function its code and what its closure calls. A
// function that is made in each call is so one owner, which has the limit once. 0 for what is neither a module nor a
// function.
inline Owner stable_identity(PyObject* object, int depth) {
  if (is_module(object)) return reinterpret_cast<Owner>(object);
  if (PyFunction_Check(object)) {
    const auto* function = reinterpret_cast<PyFunctionObject*>(object);
    return mixed(reinterpret_cast<Owner>(function->func_code), owner_in_closure(function->func_closure, depth - 1));
  }
  if (PyMethod_Check(object)) {
    PyObject* self = PyMethod_GET_SELF(object);
    return mixed(stable_identity(PyMethod_GET_FUNCTION(object), depth),
                 is_module(self) ? reinterpret_cast<Owner>(self) : 0);
  }
  if (PyCFunction_Check(object)) return reinterpret_cast<Owner>(reinterpret_cast<PyCFunctionObject*>(object)->m_ml);
  return 0;
}

// Of all modules and functions in the cells of a closure.
inline Owner owner_in_closure(PyObject* closure, int depth) {
  Owner found = 0;
  if (closure == nullptr || depth == 0) return found;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(closure); ++at) {
    PyObject* content = PyCell_GET(PyTuple_GET_ITEM(closure, at));
    const Owner one = content != nullptr ? stable_identity(content, depth) : 0;
    if (one != 0) found = mixed(found, one);
  }
  return found;
}

// The first argument that is a module: the one whose method starts, or the one that the rest of a loop's round works
// with. All modules of a class share their methods' code. Else what the function's closure calls: all functions that
// one decorator wraps share its code.
inline Owner owner_of(const FrameView& view) {
  for (Py_ssize_t at = 0; at < view.count; ++at) {
    PyObject* argument = view.arguments[at];
    if (argument != nullptr && is_module(argument)) return reinterpret_cast<Owner>(argument);
  }
  return owner_in_closure(view.closure, kOwnerDepth);
}

}  // namespace flambeau
