// The module: method table, slots, version; nothing else.
#include "devices.hpp"
#include "frame_hook.hpp"
#include "module_call.hpp"
#include "node_hooks.hpp"
#include "region.hpp"

namespace flambeau {
namespace {

PyObject* hook_installed(PyObject*, PyObject*) { return PyBool_FromLong(hook_is_installed()); }

PyObject* active_region(PyObject*, PyObject*) {
  auto* region = reinterpret_cast<PyObject*>(thread_state().active);
  return Py_NewRef(region != nullptr ? region : Py_None);
}

PyObject* set_suspended(PyObject*, PyObject* argument) {
  const int wanted = PyObject_IsTrue(argument);
  if (wanted < 0) return nullptr;
  return PyBool_FromLong(std::exchange(thread_state().suspended, wanted != 0));
}

PyObject* same_constant_of(PyObject*, PyObject* args) {
  PyObject *left = nullptr, *right = nullptr;
  if (!PyArg_ParseTuple(args, "OO:same_constant", &left, &right)) return nullptr;
  return boundary([&] { return PyBool_FromLong(same_constant(left, right)); }, static_cast<PyObject*>(nullptr));
}

PyObject* set_module_call(PyObject*, PyObject* args) {
  PyObject *type = nullptr, *entered = nullptr, *inner = nullptr;
  if (!PyArg_ParseTuple(args, "O!O!O!:set_module_call", &PyType_Type, &type, &PyCode_Type, &entered, &PyCode_Type, &inner)) {
    return nullptr;
  }
  ModuleCall& call = module_call();
  Py_XSETREF(call.type, reinterpret_cast<PyTypeObject*>(Py_NewRef(type)));
  Py_XSETREF(call.entered, Py_NewRef(entered));
  Py_XSETREF(call.inner, Py_NewRef(inner));
  return Py_NewRef(Py_None);
}

PyObject* keep_guard(PyObject*, PyObject*) {
  return boundary([&] { return keep_cuda_guard(), Py_NewRef(Py_None); }, static_cast<PyObject*>(nullptr));
}

PyObject* take_hooks(PyObject*, PyObject*) { return boundary(take_node_hooks, static_cast<PyObject*>(nullptr)); }

PyObject* put_back_hooks(PyObject*, PyObject* taken) {
  return boundary(
      [&]() -> PyObject* {
        put_back_node_hooks(taken);
        return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
      },
      static_cast<PyObject*>(nullptr));
}

PyMethodDef methods[] = {
    {"hook_installed", hook_installed, METH_NOARGS, "Whether the frame hook is installed now."},
    {"active_region", active_region, METH_NOARGS, "The region that runs on this thread, or None."},
    {"set_suspended", set_suspended, METH_O, "While True, calls of regions on this thread are plain calls; returns the old value."},
    {"set_module_call", set_module_call, METH_VARARGS,
     "set_module_call(type, entered, inner): the module class and the code of its call machinery, which is compiled for a region's own module alone."},
    {"keep_cuda_guard", keep_guard, METH_NOARGS, "Fakes of CUDA tensors in a process without a CUDA device: what stands for its guard stays for good."},
    {"take_node_hooks", take_hooks, METH_NOARGS, "Take this thread's hooks on new nodes of autograd away; what `put_back_node_hooks` takes."},
    {"put_back_node_hooks", put_back_hooks, METH_O, "Put back what `take_node_hooks` gave."},
    {"same_constant", same_constant_of, METH_VARARGS, "Exact equality of constants, as guards mean it."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject* module) {
  return boundary(
      [&] {
        add_guard_tree_type(module);
        add_region_types(module);
        return PyModule_AddStringConstant(module, "TORCH_VERSION", FLAMBEAU_TORCH_VERSION);
      },
      -1);
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)},
#if FB_312
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if FB_313
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", "Frame hook, code cache and guard tree.", 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace flambeau

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&flambeau::definition); }
