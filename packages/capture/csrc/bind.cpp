// Bind a call's arguments to a function's parameters as CPython does, without making a frame.
#include "bind.hpp"

#include <algorithm>

namespace flambeau {

bool BoundArguments::bind(PyFunctionObject* function, PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                          PyObject* names) {
  const auto* code = reinterpret_cast<const PyCodeObject*>(function->func_code);
  size_ = parameter_count(code);
  const Py_ssize_t positional = code->co_argcount;
  const Py_ssize_t offset = self != nullptr;
  const Py_ssize_t given = count + offset;
  const bool takes_extra = (code->co_flags & CO_VARARGS) != 0;
  if (size_ > kMost || (given > positional && !takes_extra) || (offset > positional)) return false;

  std::fill(slots_, slots_ + size_, nullptr);
  if (self != nullptr) slots_[0] = self;
  const Py_ssize_t direct = std::min(given, positional) - offset;
  std::copy(arguments, arguments + direct, slots_ + offset);

  const Py_ssize_t named = positional + code->co_kwonlyargcount;
  if (takes_extra) {
    extra_ = Ref::steal(PyTuple_New(count - direct));
    if (!extra_) {
      PyErr_Clear();
      return false;
    }
    for (Py_ssize_t i = direct; i < count; ++i) {
      PyTuple_SET_ITEM(extra_.get(), i - direct, Py_NewRef(arguments[i]));
    }
    slots_[named] = extra_.get();
  }
  if ((code->co_flags & CO_VARKEYWORDS) != 0) {
    keywords_ = Ref::steal(PyDict_New());
    if (!keywords_) {
      PyErr_Clear();
      return false;
    }
    slots_[named + takes_extra] = keywords_.get();
  }
  if (names != nullptr && !bind_keywords(code, arguments + count, names)) return false;
  return fill_defaults(function, code);
}

bool BoundArguments::bind_keywords(const PyCodeObject* code, PyObject* const* values, PyObject* names) {
  const Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); ++k) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    Py_ssize_t place = code->co_posonlyargcount;
    // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): it takes a code object's counts for numbers below zero
    while (place < named && PyTuple_GET_ITEM(code->co_localsplusnames, place) != name) ++place;
    if (place == named) {
      // Names that are not interned: compare by value.
      place = code->co_posonlyargcount;
      while (place < named && PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, place), name) != 0) ++place;
    }
    if (place < named) {
      if (slots_[place] != nullptr) return false;
      slots_[place] = values[k];
    } else if (!keywords_ || PyDict_SetItem(keywords_.get(), name, values[k]) < 0) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

bool BoundArguments::fill_defaults(const PyFunctionObject* function, const PyCodeObject* code) {
  const Py_ssize_t defaults = function->func_defaults != nullptr ? PyTuple_GET_SIZE(function->func_defaults) : 0;
  for (Py_ssize_t i = 0; i < code->co_argcount; ++i) {
    if (slots_[i] != nullptr) continue;
    const Py_ssize_t place = i - (code->co_argcount - defaults);
    if (place < 0) return false;
    slots_[i] = PyTuple_GET_ITEM(function->func_defaults, place);
  }
  for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; ++i) {
    if (slots_[i] != nullptr) continue;
    if (function->func_kwdefaults == nullptr) return false;
    slots_[i] = PyDict_GetItemWithError(function->func_kwdefaults, PyTuple_GET_ITEM(code->co_localsplusnames, i));
    if (slots_[i] == nullptr) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

}  // namespace flambeau
