// Tripwires: while some are set the frame hook is installed, which asks here about every frame of the thread.
#include "tripwires.hpp"

#include <memory>
#include <unordered_map>

#include "flambeau/refs.hpp"
#include "frame_hook.hpp"

namespace flambeau {

struct Tripwires {
  Ref wires;                                           // holds what is below
  std::unordered_map<PyCodeObject*, PyObject*> calls;  // by identity: equal codes of other functions are others
  HookInstalled hook;
};

PyObject* set_tripwires(PyObject* wires) {
  std::unique_ptr<Tripwires> made;
  if (wires != Py_None) {
    Ref own = Ref::steal(PyDict_Copy(wires));
    if (!own) return nullptr;
    made = std::make_unique<Tripwires>();
    PyObject *code = nullptr, *call = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(own.get(), &at, &code, &call);) {
      if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "expected code objects");
      made->calls.emplace(reinterpret_cast<PyCodeObject*>(code), call);
    }
    made->wires = std::move(own);
  }
  std::unique_ptr<Tripwires> before(std::exchange(thread_state().tripwires, made.release()));
  return before ? Py_NewRef(before->wires.get()) : Py_NewRef(Py_None);
}

bool is_tripped(ThreadState& state, PyCodeObject* code) {
  const auto found = state.tripwires->calls.find(code);
  if (found == state.tripwires->calls.end()) return false;
  const Ref call = Ref::share(found->second);  // which may set others
  const Ref result = Ref::steal(PyObject_CallNoArgs(call.get()));
  return !result;
}

}  // namespace flambeau
