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

// The characters of a str.
inline std::string text_of(PyObject* object) {
  const char* text = PyUnicode_AsUTF8(object);
  if (text == nullptr) throw PythonError();
  return text;
}

// Take the exception of this thread away, whole: a class alone becomes an instance, with its traceback. None is set: an
// empty reference.
inline Ref take_error() {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref::steal(PyErr_GetRaisedException());
#else
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref::steal(value);
#endif
}

// Set what `take_error` gave.
inline void put_back_error(Ref error) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(error.release());
#else
  if (!error) return PyErr_Clear();
  PyObject* value = error.release();
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value, PyException_GetTraceback(value));
#endif
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
