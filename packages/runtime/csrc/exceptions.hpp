// What a call of the module raises: C++ exceptions, torch's and ours, as the Python exceptions that torch would raise.
#pragma once

#include <torch/csrc/Exceptions.h>

#include "flambeau/errors.hpp"
#include "scalar.hpp"

namespace flambeau {

// The Python class of an error of a program.
PyObject* exception_of(ProgramError::Type type);

// Run `body`; what it throws becomes a Python exception, and the result null.
template <typename Body>
PyObject* translated(Body&& body) {
  HANDLE_TH_ERRORS
  try {
    return body();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const ProgramError& error) {
    PyErr_SetString(exception_of(error.type), error.what());
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

}  // namespace flambeau
