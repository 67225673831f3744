// What a trace function tells of the debugger behind it.
#include "debugger.hpp"

#include "flambeau/errors.hpp"

namespace flambeau {
namespace {

// A debugger of the program was made from a class of this module, which is imported by then.
bool is_debugger(PyObject* object) {
  Ref name = checked(PyUnicode_InternFromString("bdb"));
  Ref module = Ref::steal(PyImport_GetModule(name.get()));
  if (!module) return false;
  Ref debugger = checked(PyObject_GetAttrString(module.get(), "Bdb"));
  return PyType_Check(debugger.get()) &&
         PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(debugger.get())) != 0;
}

// As `Bdb.dispatch_call` decides: it stops anywhere where no frame is named to stop in, and else at its breakpoints.
bool may_stop(PyObject* debugger) {
  Ref frame = checked(PyObject_GetAttrString(debugger, "stopframe"));
  if (frame.get() == Py_None) return true;
  Ref breakpoints = checked(PyObject_GetAttrString(debugger, "breaks"));
  const int any = PyObject_IsTrue(breakpoints.get());
  if (any < 0) throw PythonError();
  return any != 0;
}

}  // namespace

bool debugger_may_stop(ThreadState& state, PyObject* trace_function) {
  if (!PyMethod_Check(trace_function)) return false;
  Ref debugger = Ref::share(PyMethod_GET_SELF(trace_function));
  SuspendedScope asking(state);
  const bool stops = boundary([&] { return is_debugger(debugger.get()) && may_stop(debugger.get()); }, false);
  PyErr_Clear();  // one that does not tell where it stops is a trace function like any other
  return stops;
}

}  // namespace flambeau
