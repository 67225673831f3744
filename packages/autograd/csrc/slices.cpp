#include "slices.hpp"

#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_cpp_function.h>

#include <cstring>

namespace flambeau {

PyObject* write_behind(PyObject* /*module*/, PyObject* node) {
  return boundary(
      [&]() -> PyObject* {
        // Torch's headers do not name its Python type; nodes of functions written in Python lie in memory otherwise.
        if (std::strcmp(Py_TYPE(node)->tp_name, "CopySlices") != 0) return Py_NewRef(Py_None);
        const auto* slices = dynamic_cast<torch::autograd::CopySlices*>(
            reinterpret_cast<torch::autograd::THPCppFunction*>(node)->cdata.get());
        if (slices == nullptr || !slices->fn) return Py_NewRef(Py_None);
        PyObject* behind = torch::autograd::functionToPyObject(slices->fn);
        if (behind == nullptr) throw PythonError();
        return behind;
      },
      nullptr);
}

}  // namespace flambeau
