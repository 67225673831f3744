// Bind a call's arguments to a function's parameters as CPython does, without making a frame.
#pragma once

#include "flambeau/refs.hpp"
#include "frame_view.hpp"

namespace flambeau {

class BoundArguments {
 public:
  // False where the call is an error or unusual: CPython's own path must handle it. No exception is left set.
  bool bind(PyFunctionObject* function, PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);

  PyObject* const* data() const { return slots_; }
  Py_ssize_t size() const { return size_; }

 private:
  static constexpr Py_ssize_t kMost = 48;
  bool bind_keywords(const PyCodeObject* code, PyObject* const* values, PyObject* names);
  bool fill_defaults(const PyFunctionObject* function, const PyCodeObject* code);

  PyObject* slots_[kMost];
  Py_ssize_t size_ = 0;
  Ref extra_;     // *args
  Ref keywords_;  // **kwargs
};

}  // namespace flambeau
