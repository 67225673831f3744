// Method table and module definition; nothing else.
#include "flow.hpp"
#include "joint.hpp"
#include "slices.hpp"

namespace {

PyMethodDef methods[] = {
    {"min_cut_side", flambeau::min_cut_side, METH_VARARGS, "Source side of a minimum cut, one byte a vertex."},
    {"write_behind", flambeau::write_behind, METH_O,
     "The node of the write that a node for a write through a view stands for."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject* module) {
  PyTypeObject* type = flambeau::make_joint_type(module);
  if (type == nullptr) return -1;
  const int status = PyModule_AddObjectRef(module, "JointFunction", reinterpret_cast<PyObject*>(type));
  Py_DECREF(type);
  if (status < 0 || PyModule_AddIntConstant(module, "interface", 8) < 0) return -1;
  return PyModule_AddStringConstant(module, "torch_version", FLAMBEAU_TORCH_VERSION);
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_C", "Native parts of flambeau_autograd.", 0, methods, slots, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&definition); }
