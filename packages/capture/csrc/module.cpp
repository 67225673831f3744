// The module: method table, slots, version; nothing else.
#include <memory>
#include <utility>

#include "devices.hpp"
#include "frame_hook.hpp"
#include "module_call.hpp"
#include "node_hooks.hpp"
#include "region.hpp"
#include "stance.hpp"
#include "tripwires.hpp"

namespace flambeau {
namespace {

PyObject* hook_installed(PyObject*, PyObject*) { return PyBool_FromLong(hook_is_installed()); }

PyObject* active_region(PyObject*, PyObject*) {
  auto* region = reinterpret_cast<PyObject*>(thread_state().active);
  return Py_NewRef(region != nullptr ? region : Py_None);
}

PyObject* inside_region(PyObject*, PyObject*) { return PyBool_FromLong(thread_state().inside > 0); }

PyObject* set_run_only(PyObject*, PyObject* argument) {
  const int wanted = PyObject_IsTrue(argument);
  if (wanted < 0) return nullptr;
  return PyBool_FromLong(std::exchange(thread_state().run_only, wanted != 0));
}

PyObject* set_suspended(PyObject*, PyObject* argument) {
  const int wanted = PyObject_IsTrue(argument);
  if (wanted < 0) return nullptr;
  return PyBool_FromLong(std::exchange(thread_state().suspended, wanted != 0));
}

PyObject* set_wires(PyObject*, PyObject* wires) {
  if (wires != Py_None && !PyDict_CheckExact(wires)) return PyErr_Format(PyExc_TypeError, "expected a dict or None");
  return boundary([&] { return set_tripwires(wires); }, static_cast<PyObject*>(nullptr));
}

PyObject* same_constant_of(PyObject*, PyObject* args) {
  PyObject *left = nullptr, *right = nullptr;
  if (!PyArg_ParseTuple(args, "OO:same_constant", &left, &right)) return nullptr;
  return boundary([&] { return PyBool_FromLong(same_constant(left, right)); }, static_cast<PyObject*>(nullptr));
}

PyObject* set_module_call(PyObject*, PyObject* args) {
  PyObject *type = nullptr, *entered = nullptr, *inner = nullptr;
  if (!PyArg_ParseTuple(args, "O!O!O!:set_module_call", &PyType_Type, &type, &PyCode_Type, &entered, &PyCode_Type,
                        &inner)) {
    return nullptr;
  }
  ModuleCall& call = module_call();
  Py_XSETREF(call.type, reinterpret_cast<PyTypeObject*>(Py_NewRef(type)));
  Py_XSETREF(call.entered, Py_NewRef(entered));
  Py_XSETREF(call.inner, Py_NewRef(inner));
  return Py_NewRef(Py_None);
}

PyObject* watch_scopes_of(PyObject*, PyObject* variable) {
  if (!PyContextVar_CheckExact(variable)) return PyErr_Format(PyExc_TypeError, "expected a context variable");
  watch_scopes(variable);
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

// The interpreter keeps the arguments of a call on the stack of the frame that calls, and drops them when the call is
// done: None in their place.
PyObject* hand_over(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
  if (given == 0 || !PyFunction_Check(arguments[0])) return PyErr_Format(PyExc_TypeError, "hand_over needs a function");
  const Py_ssize_t count = given - 1;
  constexpr Py_ssize_t kInline = 32;
  PyObject* small[kInline];
  std::unique_ptr<PyObject*[]> large(count > kInline ? new PyObject*[static_cast<size_t>(count)] : nullptr);
  PyObject** values = large ? large.get() : small;
  auto** stack = const_cast<PyObject**>(arguments) + 1;
  for (Py_ssize_t i = 0; i < count; ++i) values[i] = std::exchange(stack[i], Py_NewRef(Py_None));
  ThreadState& state = thread_state();
  state.handed = {values, count, reinterpret_cast<PyFunctionObject*>(arguments[0])->func_code};
  PyObject* result = PyObject_Vectorcall(arguments[0], values, static_cast<size_t>(count), nullptr);
  state.handed = {};
  for (Py_ssize_t i = 0; i < count; ++i) Py_XDECREF(values[i]);
  return result;
}

PyMethodDef methods[] = {
    {"hook_installed", hook_installed, METH_NOARGS, "Whether the frame hook is installed now."},
    {"active_region", active_region, METH_NOARGS, "The region that runs on this thread, or None."},
    {"inside_region", inside_region, METH_NOARGS, "Whether a call of a region is running on this thread."},
    {"set_stance", set_stance, METH_VARARGS,
     "set_stance(stance, differing_only, agree): how regions that adopt it are called. `agree(found) -> bool` or None."},
    {"set_run_only", set_run_only, METH_O,
     "While True, regions on this thread compile nothing new; returns the old value."},
    {"set_suspended", set_suspended, METH_O,
     "While True, calls of regions on this thread are plain calls; returns the old value."},
    {"set_tripwires", set_wires, METH_O,
     "set_tripwires({code: call} or None): on this thread, calls of functions with one of these codes are `call()`, which raises; returns what was set before."},
    {"set_module_call", set_module_call, METH_VARARGS,
     "set_module_call(type, entered, inner): the module class and the code of its call machinery, which is compiled for a region's own module alone."},
    {"hand_over", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(hand_over)), METH_FASTCALL,
     "hand_over(function, *arguments): call it with arguments that the caller, an instruction CALL of ours, does not hold any more."},
    {"watch_scopes", watch_scopes_of, METH_O,
     "watch_scopes(variable): what the scopes around a frame say of recording, which guards of the global state compare from now on."},
    {"keep_cuda_guard", keep_guard, METH_NOARGS,
     "Fakes of CUDA tensors in a process without a CUDA device: what stands for its guard stays for good."},
    {"take_node_hooks", take_hooks, METH_NOARGS,
     "Take this thread's hooks on new nodes of autograd away; what `put_back_node_hooks` takes."},
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

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_C",
                          "Frame hook, code cache and guard tree.",
                          0,
                          methods,
                          slots,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace flambeau

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&flambeau::definition); }
