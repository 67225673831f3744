// A frame (or the arguments of a call) at its first instruction, read in place.
#pragma once

#include "compat.hpp"

namespace flambeau {

// Everything is borrowed. `arguments` are the code's parameters in the order of its local variables.
struct FrameView {
  PyObject* const* arguments = nullptr;
  Py_ssize_t count = 0;
  PyObject* closure = nullptr;   // tuple of cells, or NULL
  PyObject* globals = nullptr;   // dict
  PyObject* builtins = nullptr;  // dict, or NULL
  PyObject** owned = nullptr;    // `arguments`, where they are the references of a frame that will not run
  PyObject* locals = nullptr;    // mapping name -> value, used instead of `arguments` by checks from Python
};

// How many local variables of `code` are set when it starts.
inline Py_ssize_t parameter_count(const PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0);
}

inline FrameView view_of(PyFunctionObject* function, PyObject* const* arguments, Py_ssize_t count) {
  FrameView view;
  view.arguments = arguments;
  view.count = count;
  view.closure = function->func_closure;
  view.globals = function->func_globals;
  view.builtins = function->func_builtins;
  return view;
}

}  // namespace flambeau
