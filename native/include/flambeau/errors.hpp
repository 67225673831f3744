// Errors are C++ exceptions inside a module; they become Python exceptions at its boundary and nowhere else.
#pragma once

#include <Python.h>

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "flambeau/refs.hpp"

namespace flambeau {

// A Python exception is already set on this thread.
struct PythonError : std::exception {
  const char* what() const noexcept override { return "a Python exception is set"; }
};

// Set a Python exception and unwind.
[[noreturn]] inline void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw PythonError();
}

// A call that returned NULL has set an exception: unwind. Otherwise own the result.
inline Ref checked(PyObject* result) {
  if (result == nullptr) throw PythonError();
  return Ref::steal(result);
}

// A call that returned a negative status has set an exception: unwind.
inline int checked(int status) {
  if (status < 0) throw PythonError();
  return status;
}

// Run `body` at the boundary. What it throws becomes the Python exception, and the result its failure value.
template <typename Body>
auto boundary(Body&& body, std::invoke_result_t<Body> failure) noexcept -> std::invoke_result_t<Body> {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return failure;
}

}  // namespace flambeau
