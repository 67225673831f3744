// The torch headers every file here needs, and what is done with an exception that is set.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "flambeau/errors.hpp"
#include "flambeau/refs.hpp"

namespace flambeau {

// Set aside the exception of this thread while other Python code runs.
class ErrorAside {
 public:
  ErrorAside() : error_(take_error()) {}
  ErrorAside(const ErrorAside&) = delete;
  ErrorAside& operator=(const ErrorAside&) = delete;
  ~ErrorAside() { put_back_error(std::move(error_)); }

  PyObject* error() const { return error_.get(); }

 private:
  Ref error_;
};

// Add a note to the exception that is set on this thread; a failure to do so leaves the exception as it was.
inline void add_note(PyObject* note) {
  ErrorAside aside;
  if (aside.error() == nullptr) return;
  Ref done = Ref::steal(PyObject_CallMethod(aside.error(), "add_note", "O", note));
  if (!done) PyErr_Clear();
}

}  // namespace flambeau
