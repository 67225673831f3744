#include "node_hooks.hpp"

#include <memory>

#if __has_include(<ATen/NodeCreationHooks.h>)
#include <ATen/NodeCreationHooks.h>

namespace flambeau {
namespace {

using Hooks = at::impl::NodeCreationHooks;
using State = at::impl::NodeCreationHooksTLS;

constexpr const char* kName = "flambeau node hooks";

void forget(PyObject* taken) { delete static_cast<State*>(PyCapsule_GetPointer(taken, kName)); }

}  // namespace

PyObject* take_node_hooks() {
  if (Hooks::empty()) return Py_NewRef(Py_None);
  auto state = std::make_unique<State>(Hooks::get_tls_state());
  PyObject* taken = PyCapsule_New(state.get(), kName, forget);
  if (taken == nullptr) return nullptr;
  state.release();
  Hooks::set_tls_state({});
  return taken;
}

void put_back_node_hooks(PyObject* taken) {
  if (taken == Py_None) return;
  auto* state = static_cast<State*>(PyCapsule_GetPointer(taken, kName));
  if (state != nullptr) Hooks::set_tls_state(*state);
}

}  // namespace flambeau

#else

namespace flambeau {

PyObject* take_node_hooks() { return Py_NewRef(Py_None); }

void put_back_node_hooks(PyObject*) {}

}  // namespace flambeau

#endif
