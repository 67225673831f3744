// Owned references: a Ref holds one count of a Python object and gives it back when it dies.
#pragma once

#include <Python.h>

#include <utility>

namespace flambeau {

class Ref {
 public:
  Ref() noexcept = default;
  Ref(const Ref& other) noexcept : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  // Take over a new reference (what most of the C API returns).
  static Ref steal(PyObject* object) noexcept {
    Ref made;
    made.object_ = object;
    return made;
  }
  // Share a borrowed reference.
  static Ref share(PyObject* object) noexcept {
    Py_XINCREF(object);
    return steal(object);
  }

  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace flambeau
