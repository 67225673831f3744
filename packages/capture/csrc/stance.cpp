// The stance of the process: how regions are called under it, and how an entry is found.
#include "stance.hpp"

#include "ranges.hpp"

#include <algorithm>

#include "region.hpp"

namespace flambeau {
namespace {

PyObject* call_plain(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  ThreadState& state = thread_state();
  Ref alive = Ref::share(self);
  ActiveScope nothing(state, nullptr);
  return PyObject_Vectorcall(reinterpret_cast<Region*>(self)->callable, arguments, flags, names);
}

PyObject* call_elsewhere(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  ThreadState& state = thread_state();
  auto* region = reinterpret_cast<Region*>(self);
  if (state.suspended) return PyObject_Vectorcall(region->callable, arguments, flags, names);
  Ref alive = Ref::share(self);
  Ref other;
  {
    SuspendedScope asking(state);
    other = Ref::steal(PyObject_CallMethod(region->handler, "elsewhere", "O", self));
  }
  if (!other) return nullptr;
  if (Py_TYPE(other.get()) != Py_TYPE(self)) return PyErr_Format(PyExc_TypeError, "a handler names a region");
  return call_region(other.get(), arguments, flags, names);
}

bool looks_at_all(const CodeEntries& record) {
  return record.entries.size() > 1 &&
         std::any_of(record.entries.begin(), record.entries.end(),
                     [](const EntryPtr& entry) { return entry->guards()->differing->empty(); });
}

// The place of the first entry that fits, or the number of entries.
size_t find_match(const CodeEntries& record, const FrameView& view) {
  const bool all = !stance_state().differing_only || looks_at_all(record);
  for (size_t i = 0; i < record.entries.size(); ++i) {
    EntryPtr entry = record.entries[i];
    CapturedValues values(entry->guards()->slots);
    Evaluation evaluation(view, values.data());
    SuspendedScope guards(thread_state());
    if (all ? evaluate(entry->guards(), evaluation) : evaluate_differing(entry->guards(), evaluation)) return i;
  }
  return record.entries.size();
}

// Whether the call may run an entry: what the function of the process says of its having found one. kError leaves an
// exception.
enum class Agreed { kNo, kYes, kError };

Agreed agreed(bool found) {
  if (stance_state().agree == nullptr) return found ? Agreed::kYes : Agreed::kNo;
  SuspendedScope asking(thread_state());
  Ref function = Ref::share(stance_state().agree);
  Ref answer = Ref::steal(PyObject_CallOneArg(function.get(), found ? Py_True : Py_False));
  if (!answer) return Agreed::kError;
  const int truth = PyObject_IsTrue(answer.get());
  if (truth < 0) return Agreed::kError;
  return truth != 0 && found ? Agreed::kYes : Agreed::kNo;
}

}  // namespace

vectorcallfunc call_of_region() {
  switch (stance_state().stance) {
    case Stance::kEager: return call_plain;
    case Stance::kElsewhere: return call_elsewhere;
    default: return stance_state().is_plain() ? call_region : call_region_as_asked;
  }
}

PyObject* run_match(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view, bool& hit) {
  if (stance_state().is_plain()) return run_first_match(region, record, function, view, hit);
  hit = false;
  const size_t place = find_match(record, view);
  switch (agreed(place < record.entries.size())) {
    case Agreed::kError:
      hit = true;  // its result is the exception
      return nullptr;
    case Agreed::kNo: return nullptr;
    case Agreed::kYes: break;
  }
  // What the other ranks were asked by may have changed the list.
  if (place >= record.entries.size()) return nullptr;
  EntryPtr entry = record.entries[place];
  CapturedValues values(entry->guards()->slots);
  Evaluation evaluation(view, values.data());
  const bool all = !stance_state().differing_only || looks_at_all(record);
  {
    SuspendedScope guards(thread_state());
    if (!(all ? evaluate(entry->guards(), evaluation) : evaluate_differing(entry->guards(), evaluation)))
      return nullptr;
  }
  hit = true;
  return run_entry(region, record, place, entry, values.data(), function, view, is_profiled());
}

// set_stance(stance, differing_only, agree)
PyObject* set_stance(PyObject*, PyObject* args) {
  int stance = 0, differing_only = 0;
  PyObject* agree = nullptr;
  if (!PyArg_ParseTuple(args, "ipO:set_stance", &stance, &differing_only, &agree)) return nullptr;
  if (stance < 0 || stance > static_cast<int>(Stance::kElsewhere))
    return PyErr_Format(PyExc_ValueError, "no such stance");
  StanceState& state = stance_state();
  state.stance = static_cast<Stance>(stance);
  state.differing_only = differing_only != 0;
  Py_XSETREF(state.agree, agree == Py_None ? nullptr : Py_NewRef(agree));
  return Py_NewRef(Py_None);
}

}  // namespace flambeau
