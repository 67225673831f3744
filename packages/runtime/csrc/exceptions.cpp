#include "exceptions.hpp"

namespace flambeau {
namespace {

// `PredictionError` of the package's errors; RuntimeError, which it is one of, where that cannot be imported.
PyObject* prediction_error() {
  static PyObject* const found = [] {
    const Ref errors = Ref::steal(PyImport_ImportModule("flambeau_runtime.errors"));
    PyObject* type = errors ? PyObject_GetAttrString(errors.get(), "PredictionError") : nullptr;
    if (type == nullptr) PyErr_Clear();
    return type != nullptr ? type : PyExc_RuntimeError;
  }();
  return found;
}

}  // namespace

PyObject* exception_of(ProgramError::Type type) {
  switch (type) {
    case ProgramError::Type::Prediction: return prediction_error();
    case ProgramError::Type::Index: return PyExc_IndexError;
    case ProgramError::Type::ZeroDivision: return PyExc_ZeroDivisionError;
    case ProgramError::Type::Overflow: return PyExc_OverflowError;
    case ProgramError::Type::Value: return PyExc_ValueError;
    case ProgramError::Type::TypeMismatch: return PyExc_TypeError;
    default: return PyExc_RuntimeError;
  }
}

}  // namespace flambeau
