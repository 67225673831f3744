// What differs between CPython versions, and the torch headers every file here needs.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "flambeau/errors.hpp"
#include "flambeau/refs.hpp"

namespace flambeau {

// Add a note to the exception that is set on this thread; a failure to do so leaves the exception as it was.
inline void add_note(PyObject* note) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* error = PyErr_GetRaisedException();
  if (error != nullptr) {
    Ref done = Ref::steal(PyObject_CallMethod(error, "add_note", "O", note));
    if (!done) PyErr_Clear();
    PyErr_SetRaisedException(error);
  }
#else
  PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  if (error != nullptr) {
    Ref done = Ref::steal(PyObject_CallMethod(error, "add_note", "O", note));
    if (!done) PyErr_Clear();
  }
  PyErr_Restore(type, error, trace);
#endif
}

// Set aside the exception of this thread while other Python code runs.
class ErrorAside {
 public:
#if PY_VERSION_HEX >= 0x030C0000
  ErrorAside() : error_(PyErr_GetRaisedException()) {}
  ~ErrorAside() { PyErr_SetRaisedException(error_); }

 private:
  PyObject* error_;
#else
  ErrorAside() { PyErr_Fetch(&type_, &error_, &trace_); }
  ~ErrorAside() { PyErr_Restore(type_, error_, trace_); }

 private:
  PyObject *type_ = nullptr, *error_ = nullptr, *trace_ = nullptr;
#endif
};

}  // namespace flambeau
