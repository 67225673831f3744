// Compiled entries: from the handler's answer to a record, and from a matching record to the frame's result.
#include "code_cache.hpp"

#include <algorithm>
#include <cstring>

#include "frame_hook.hpp"
#include "ranges.hpp"

namespace flambeau {
namespace {

OutputPlan parse_output(PyObject* outputs) {
  OutputPlan plan;
  if (outputs == Py_None) return plan;
  if (PyLong_CheckExact(outputs)) {
    plan.kind = OutputPlan::Kind::kSingle;
    plan.indices.push_back(PyLong_AsSsize_t(outputs));
    return plan;
  }
  plan.kind = PyList_CheckExact(outputs) ? OutputPlan::Kind::kList : OutputPlan::Kind::kTuple;
  Ref items = checked(PySequence_Tuple(outputs));
  plan.is_whole = plan.kind == OutputPlan::Kind::kTuple;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    plan.indices.push_back(item == Py_None ? -1 : PyLong_AsSsize_t(item));
    if (PyErr_Occurred()) throw PythonError();
    plan.is_whole &= plan.indices.back() == i;
  }
  return plan;
}

PyObject* pick(PyObject* results, Py_ssize_t index) {
  if (index == -1) return Py_None;
  if (index < 0 || index >= PySequence_Fast_GET_SIZE(results)) {
    raise(PyExc_RuntimeError, "a compiled graph returned fewer values than it was compiled for");
  }
  return PySequence_Fast_GET_ITEM(results, index);
}

PyObject* apply(const OutputPlan& plan, Ref results) {
  if (plan.kind == OutputPlan::Kind::kNone) return Py_NewRef(Py_None);
  if (!PyTuple_Check(results.get()) && !PyList_Check(results.get())) {
    raise(PyExc_TypeError,
          std::string("a compiled graph must return a tuple or a list, not ") + Py_TYPE(results.get())->tp_name);
  }
  const auto size = static_cast<Py_ssize_t>(plan.indices.size());
  if (plan.kind == OutputPlan::Kind::kSingle) return Py_NewRef(pick(results.get(), plan.indices[0]));
  if (plan.is_whole && PyTuple_CheckExact(results.get()) && PyTuple_GET_SIZE(results.get()) == size) {
    return results.release();
  }
  const bool is_list = plan.kind == OutputPlan::Kind::kList;
  Ref made = checked(is_list ? PyList_New(size) : PyTuple_New(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = Py_NewRef(pick(results.get(), plan.indices[static_cast<size_t>(i)]));
    if (is_list) {
      PyList_SET_ITEM(made.get(), i, item);
    } else {
      PyTuple_SET_ITEM(made.get(), i, item);
    }
  }
  return made.release();
}

PyObject* run_graph(Entry& entry, PyObject* const* captured) {
  const size_t count = entry.inputs.size();
  // One more slot in front lets the callee prepend to its arguments in place.
  constexpr size_t kInline = 64;
  PyObject* small[kInline + 1];
  std::unique_ptr<PyObject*[]> large(count > kInline ? new PyObject*[count + 1] : nullptr);
  PyObject** arguments = (large ? large.get() : small) + 1;
  for (size_t i = 0; i < count; ++i) arguments[i] = Py_NewRef(captured[entry.inputs[i]]);

  Ref results;
  {
    ActiveScope nothing(thread_state(), nullptr);
    if (entry.boxed) {
      Ref list = Ref::steal(PyList_New(static_cast<Py_ssize_t>(count)));
      for (size_t i = 0; i < count; ++i) {
        if (list) {
          PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), arguments[i]);
        } else {
          Py_DECREF(arguments[i]);
        }
      }
      if (list) results = Ref::steal(PyObject_CallOneArg(entry.compiled.get(), list.get()));
    } else {
      results = Ref::steal(
          PyObject_Vectorcall(entry.compiled.get(), arguments, count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      for (size_t i = 0; i < count; ++i) Py_DECREF(arguments[i]);
    }
  }
  if (!results) throw PythonError();
  return apply(entry.output, std::move(results));
}

// A function over the rewritten code with the frame's globals; the last one made is kept.
Ref function_for(Entry& entry, const PyFunctionObject* original) {
  auto* kept = reinterpret_cast<PyFunctionObject*>(entry.function.get());
  if (kept == nullptr || kept->func_globals != original->func_globals) {
    entry.function = checked(PyFunction_New(entry.code.get(), original->func_globals));
  }
  return entry.function;
}

// Gives a kept function the frame's closure for one call: its cells hold what the program's frame holds, and would
// outlive it. A frame copies them as it starts, so that calls within the call may exchange it.
class ClosureLent {
 public:
  ClosureLent(const Ref& function, PyObject* closure) : function_(closure != nullptr ? function : Ref()) {
    if (function_) checked(PyFunction_SetClosure(function_.get(), closure));
  }
  ~ClosureLent() {
    if (function_) Py_CLEAR(reinterpret_cast<PyFunctionObject*>(function_.get())->func_closure);
  }
  ClosureLent(const ClosureLent&) = delete;
  ClosureLent& operator=(const ClosureLent&) = delete;

 private:
  Ref function_;
};

PyObject* run_code(Region* region, Entry& entry, PyFunctionObject* original, const FrameView& view) {
  Ref function = function_for(entry, original);
  ClosureLent closure(function, original->func_closure);
  ThreadState& state = thread_state();
  HookInstalled hook;
  ActiveScope active(state, region);
  state.pass_code = entry.code.get();
  state.handed = {view.owned, view.count, entry.code.get()};
  PyObject* result = PyObject_Vectorcall(function.get(), view.arguments, static_cast<size_t>(view.count), nullptr);
  state.pass_code = nullptr;
  state.handed = {};
  if (result == nullptr) throw PythonError();
  return result;
}

}  // namespace

EntryPtr parse_entry(PyObject* answer) {
  EntryPtr entry(new Entry());
  const char* kind = nullptr;
  const char* number = nullptr;
  PyObject *tree = nullptr, *second = nullptr, *keep = nullptr;
  if (PyTuple_GET_SIZE(answer) == 5) {
    if (!PyArg_ParseTuple(answer, "sOO!Os", &kind, &tree, &PyCode_Type, &second, &keep, &number)) throw PythonError();
    entry->code = Ref::share(second);
  } else {
    PyObject *slots = nullptr, *outputs = nullptr;
    int boxed = 0;
    if (!PyArg_ParseTuple(answer, "sOOpO!OOs", &kind, &tree, &second, &boxed, &PyTuple_Type, &slots, &outputs, &keep,
                          &number)) {
      throw PythonError();
    }
    entry->compiled = Ref::share(second);
    entry->boxed = boxed != 0;
    entry->output = parse_output(outputs);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); ++i) {
      const long slot = PyLong_AsLong(PyTuple_GET_ITEM(slots, i));
      if (slot == -1 && PyErr_Occurred()) throw PythonError();
      entry->inputs.push_back(static_cast<int>(slot));
    }
  }
  entry->number = number;
  if (!is_guard_tree(tree)) raise(PyExc_TypeError, "an entry needs a GuardTree");
  for (int slot : entry->inputs) {
    if (slot < 0 || slot >= reinterpret_cast<GuardTree*>(tree)->slots) raise(PyExc_IndexError, "no such slot");
  }
  entry->tree = Ref::share(tree);
  entry->keep = Ref::share(keep);
  return entry;
}

PyObject* run_entry(Region* region, CodeEntries& record, size_t place, const EntryPtr& entry, PyObject* const* values,
                    PyFunctionObject* function, const FrameView& view, bool profiled) {
  ++thread_state().runs;
  // A guard may have run Python that changed the list: only move what is still in its place.
  if (place > 0 && place < record.entries.size() && &*record.entries[place] == &*entry) {
    const auto at = record.entries.begin() + static_cast<std::ptrdiff_t>(place);
    std::rotate(record.entries.begin(), at, at + 1);
  }
  const auto run = [&] {
    return entry->compiled ? run_graph(*entry, values) : run_code(region, *entry, function, view);
  };
  if (!profiled) return boundary(run, static_cast<PyObject*>(nullptr));
  const OpenRange range(region, record, *entry);
  return boundary(run, static_cast<PyObject*>(nullptr));
}

PyObject* run_first_match(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view,
                          bool& hit) {
  const bool profiled = is_profiled();
  std::optional<OpenRange> lookup;
  if (profiled) lookup.emplace("TorchDynamo Cache Lookup");
  for (size_t i = 0; i < record.entries.size(); ++i) {
    EntryPtr entry = record.entries[i];
    CapturedValues values(entry->guards()->slots);
    Evaluation evaluation(view, values.data());
    {
      SuspendedScope guards(thread_state());
      if (!evaluate(entry->guards(), evaluation)) continue;
    }
    if (profiled) lookup.reset();
    hit = true;
    return run_entry(region, record, i, entry, values.data(), function, view, profiled);
  }
  hit = false;
  return nullptr;
}

void drop_once(CodeEntries& record) {
  std::vector<EntryPtr> dropped;  // destroyed when the list is consistent again
  record.has_once = false;
  for (size_t i = 0; i < record.entries.size();) {
    if (!record.entries[i]->once) {
      ++i;
      continue;
    }
    dropped.push_back(record.entries[i]);
    record.entries.erase(record.entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void drop_dead(CodeEntries& record) {
  std::vector<EntryPtr> dead;
  for (size_t i = 0; i < record.entries.size();) {
    if (is_alive(record.entries[i]->guards())) {
      ++i;
      continue;
    }
    dead.push_back(record.entries[i]);
    record.entries.erase(record.entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace flambeau
