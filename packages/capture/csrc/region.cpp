// Region and Disabled: the two callables that switch the frame hook on and off.
#include "region.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "bind.hpp"
#include "debugger.hpp"
#include "frame_hook.hpp"
#include "module_call.hpp"
#include "stance.hpp"

namespace flambeau {
namespace {

PyTypeObject* region_type = nullptr;
PyTypeObject* disabled_type = nullptr;
PyObject* call_name = nullptr;

Region* as_region(PyObject* object) { return reinterpret_cast<Region*>(object); }

// ---- asking the compiler

class CompileScope {
 public:
  CompileScope(ThreadState& state, CodeEntries& record) : record_(record), suspended_(state) {
    record.compiling = true;
  }
  ~CompileScope() { record_.compiling = false; }

 private:
  CodeEntries& record_;
  SuspendedScope suspended_;
};

Ref locals_of(const PyCodeObject* code, const FrameView& view) {
  Ref locals = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < view.count; ++i) {
    if (view.arguments[i] == nullptr) continue;
    checked(PyDict_SetItem(locals.get(), PyTuple_GET_ITEM(code->co_localsplusnames, i), view.arguments[i]));
  }
  const Py_ssize_t free = view.closure != nullptr ? PyTuple_GET_SIZE(view.closure) : 0;
  for (Py_ssize_t i = 0; i < free; ++i) {
    PyObject* content = PyCell_GET(PyTuple_GET_ITEM(view.closure, i));
    if (content == nullptr) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - free + i);
    checked(PyDict_SetItem(locals.get(), name, content));
  }
  return locals;
}

Ref trees_of(const CodeEntries& record) {
  Ref trees = checked(PyTuple_New(static_cast<Py_ssize_t>(record.entries.size())));
  for (size_t i = 0; i < record.entries.size(); ++i) {
    PyTuple_SET_ITEM(trees.get(), static_cast<Py_ssize_t>(i), Py_NewRef(record.entries[i]->tree.get()));
  }
  return trees;
}

// An error that the handler returns, as it is: with the traceback that the handler gave it.
[[noreturn]] void raise_answer(const Ref& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  throw PythonError();
}

Ref ask(Region* region, const CodeEntries& record, PyFunctionObject* function, const FrameView& view, bool over_limit) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Ref locals = locals_of(code, view);
  Ref trees = trees_of(record);
  PyObject* closure = view.closure != nullptr ? view.closure : Py_None;
  PyObject* arguments[] = {function->func_code,
                           locals.get(),
                           view.globals,
                           view.builtins != nullptr ? view.builtins : Py_None,
                           closure,
                           reinterpret_cast<PyObject*>(function),
                           trees.get(),
                           over_limit ? Py_True : Py_False};
  PyObject* answer = nullptr;
  {
    HookPaused unhooked;
    answer = PyObject_Vectorcall(region->handler, arguments, std::size(arguments), nullptr);
  }
  keep_hook_installed();
  if (answer != nullptr && PyExceptionInstance_Check(answer)) raise_answer(Ref::steal(answer));
  return checked(answer);
}

// Frames of Python that compiling takes for itself, at most this many and this share of what the program may nest.
constexpr int kFramesToCompile = 200;
constexpr int kShareToCompile = 4;

// Frames that an event may take on its way to where it is shown.
constexpr int kFramesToTell = 50;

bool is_near_limit(const PyThreadState* thread) {
  const compat::FramesLeft frames = compat::frames_left(thread);
  return frames.left < std::min(kFramesToCompile, frames.limit / kShareToCompile);
}

// Where many have one code, each owner has the limit for itself; all of them together have this many times as much.
constexpr Py_ssize_t kOwnersLimit = 32;
constexpr size_t kSkippedOwners = 4;

bool is_over_limit(const Region* region, const CodeEntries& record, Owner owner) {
  const auto own = std::count_if(record.entries.begin(), record.entries.end(),
                                 [&](const EntryPtr& entry) { return entry->owner == owner; });
  return own >= region->limit || static_cast<Py_ssize_t>(record.entries.size()) >= kOwnersLimit * region->limit;
}

// Looking at a frame costs far more than running it. Where that came to nothing as often as there may be entries, the
// next look is after twice as many calls each time: a frame that can be captured at last is found, and one that never
// can costs little.
bool is_left_alone(const Region* region, Py_ssize_t calls) {
  return calls > region->limit && (calls & (calls - 1)) != 0;
}

// ---- calling a region

struct Target {
  PyFunctionObject* function = nullptr;
  PyObject* self = nullptr;
};

// The Python function that calling `callable` enters first, where that is certain.
Target target_of(PyObject* callable) {
  if (PyFunction_Check(callable)) return {reinterpret_cast<PyFunctionObject*>(callable), nullptr};
  if (PyMethod_Check(callable)) {
    PyObject* function = PyMethod_GET_FUNCTION(callable);
    if (!PyFunction_Check(function)) return {};
    return {reinterpret_cast<PyFunctionObject*>(function), PyMethod_GET_SELF(callable)};
  }
  if (PyType_Check(callable) || (Py_TYPE(callable)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return {};
  PyObject* call = _PyType_Lookup(Py_TYPE(callable), call_name);
  if (call == nullptr || !PyFunction_Check(call)) return {};
  return {reinterpret_cast<PyFunctionObject*>(call), callable};
}

// Have the handler tell something of `object`. What becomes of the program doesn't depend on it.
void tell(Region* region, ThreadState& state, const char* what, PyObject* object) {
  SuspendedScope asking(state);
  HookPaused unhooked;
  PyObject* told = PyObject_CallMethod(region->handler, what, "O", object);
  if (told == nullptr) PyErr_WriteUnraisable(region->handler);
  Py_XDECREF(told);
}

// Raise what the handler says of a call of a strict region in which nothing ran that was compiled.
void refuse_nothing(Region* region, ThreadState& state) {
  SuspendedScope asking(state);
  HookPaused unhooked;
  PyObject* error = PyObject_CallMethod(region->handler, "nothing_ran", "O", region->callable);
  if (error == nullptr) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
}

template <PyObject* (*kRunMatch)(Region*, CodeEntries&, PyFunctionObject*, const FrameView&, bool&)>
PyObject* call_with(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  Region* region = as_region(self);
  ThreadState& state = thread_state();
  if (state.suspended) return PyObject_Vectorcall(region->callable, arguments, flags, names);

  Ref alive = Ref::share(self);
  CodeEntries* missed = nullptr;
  const Target target = target_of(region->callable);
  if (target.function != nullptr && !is_watched(state, PyThreadState_Get())) {
    CodeEntries* record = find_record(region, reinterpret_cast<PyCodeObject*>(target.function->func_code));
    BoundArguments bound;
    if (record != nullptr && !record->entries.empty() &&
        bound.bind(target.function, target.self, arguments, PyVectorcall_NARGS(flags), names)) {
      Ref function = Ref::share(reinterpret_cast<PyObject*>(target.function));
      bool hit = false;
      PyObject* result =
          kRunMatch(region, *record, target.function, view_of(target.function, bound.data(), bound.size()), hit);
      if (hit) return result;
      missed = record;
    }
  }
  HookInstalled hook;
  ActiveScope active(state, region);
  state.known_miss = missed;
  const auto runs = state.runs;
  PyObject* result = PyObject_Vectorcall(region->callable, arguments, flags, names);
  state.known_miss = nullptr;
  if (result == nullptr || state.runs != runs) return result;
  if (region->strict) {
    Py_DECREF(result);
    refuse_nothing(region, state);
    return nullptr;
  }
  if (!std::exchange(region->told_nothing, true)) tell(region, state, "tell_nothing_ran", region->callable);
  return result;
}

PyObject* region_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"callable", "handler", "limit", nullptr};
  PyObject *callable = nullptr, *handler = nullptr;
  Py_ssize_t limit = 8;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|n:Region", const_cast<char**>(names), &callable, &handler,
                                   &limit)) {
    return nullptr;
  }
  if (!PyCallable_Check(callable) || !PyCallable_Check(handler)) {
    PyErr_SetString(PyExc_TypeError, "Region needs a callable and a handler that can be called");
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Region* region = as_region(self);
  region->vectorcall = call_of_region();
  region->callable = Py_NewRef(callable);
  region->handler = Py_NewRef(handler);
  region->limit = limit;
  region->label = Py_NewRef(Py_None);
  region->table = new CodeTable();
  return self;
}

int region_traverse(PyObject* self, visitproc visit, void* arg) {
  Region* region = as_region(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(region->callable);
  Py_VISIT(region->handler);
  Py_VISIT(region->label);
  Py_VISIT(region->dict);
  if (region->table == nullptr) return 0;
  for (const auto& [code, record] : *region->table) {
    Py_VISIT(record->code.get());
    for (const EntryPtr& entry : record->entries) {
      if (entry->uses > 1) continue;  // a running call owns it too
      Py_VISIT(entry->tree.get());
      Py_VISIT(entry->code.get());
      Py_VISIT(entry->function.get());
      Py_VISIT(entry->compiled.get());
      Py_VISIT(entry->keep.get());
    }
  }
  return 0;
}

void forget_entries(Region* region) {
  region->told_nothing = false;
  if (region->table == nullptr) return;
  std::vector<EntryPtr> dropped;  // destroyed when the table is consistent again
  for (auto& [code, record] : *region->table) {
    for (EntryPtr& entry : record->entries) dropped.push_back(entry);
    record->entries.clear();
    record->skip = record->skip_recursive = false;
    record->limit_told.clear();
    record->left_alone.clear();
    record->skipped.clear();
  }
}

int region_clear(PyObject* self) {
  Region* region = as_region(self);
  forget_entries(region);
  Py_CLEAR(region->callable);
  Py_CLEAR(region->handler);
  Py_CLEAR(region->label);
  Py_CLEAR(region->dict);
  return 0;
}

void region_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Region* region = as_region(self);
  if (region->weak != nullptr) PyObject_ClearWeakRefs(self);
  region_clear(self);
  delete std::exchange(region->table, nullptr);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* bind_to_instance(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* region_forget(PyObject* self, PyObject*) {
  forget_entries(as_region(self));
  return Py_NewRef(Py_None);
}

PyObject* region_adopt_stance(PyObject* self, PyObject*) {
  as_region(self)->vectorcall = call_of_region();
  return Py_NewRef(Py_None);
}

PyObject* region_trees(PyObject* self, PyObject* code) {
  if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "expected a code object");
  return boundary(
      [&]() -> PyObject* {
        const auto found = as_region(self)->table->find(reinterpret_cast<PyCodeObject*>(code));
        return found == as_region(self)->table->end() ? PyTuple_New(0) : trees_of(*found->second).release();
      },
      nullptr);
}

PyObject* region_codes(PyObject* self, PyObject*) {
  return boundary(
      [&]() -> PyObject* {
        Ref made = checked(PyList_New(0));
        for (const auto& [code, record] : *as_region(self)->table) {
          if (!record->entries.empty()) checked(PyList_Append(made.get(), record->code.get()));
        }
        return made.release();
      },
      nullptr);
}

PyMethodDef region_methods[] = {
    {"adopt_stance", region_adopt_stance, METH_NOARGS, "Be called from now on as the stance of the process says."},
    {"forget", region_forget, METH_NOARGS, "Drop every compiled entry and every decision to skip."},
    {"trees", region_trees, METH_O, "trees(code) -> the guard trees of the code's entries, most recently used first"},
    {"codes", region_codes, METH_NOARGS, "codes() -> the code objects that have entries"},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef region_members[] = {
    {"callable", T_OBJECT_EX, offsetof(Region, callable), READONLY, "what the region calls"},
    {"handler", T_OBJECT_EX, offsetof(Region, handler), READONLY, "what is asked about new frames"},
    {"limit", T_PYSSIZET, offsetof(Region, limit), 0, "entries per code object"},
    {"label", T_OBJECT, offsetof(Region, label), 0, "the user's name for it, which ranges of a profiler show; or None"},
    {"strict", T_BOOL, offsetof(Region, strict), 0, "whether a call that runs no entry is an error"},
    {"__dictoffset__", T_PYSSIZET, offsetof(Region, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Region, weak), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Region, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef dict_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot region_slots[] = {
    {Py_tp_doc, const_cast<char*>("A callable whose frames are compiled while it runs.")},
    {Py_tp_new, reinterpret_cast<void*>(region_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(region_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(region_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(region_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to_instance)},
    {Py_tp_methods, region_methods},
    {Py_tp_members, region_members},
    {Py_tp_getset, dict_getset},
    {0, nullptr},
};

constexpr unsigned long kCallableFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                         Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE;

PyType_Spec region_spec = {"flambeau_capture._C.Region", sizeof(Region), 0, kCallableFlags, region_slots};

// ---- Disabled

struct Disabled {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* callable;
  PyObject* rescue;  // asked for the result where the callable raises; NULL: nothing is
  PyObject* dict;
  PyObject* weak;
  char recursive;
};

Disabled* as_disabled(PyObject* object) { return reinterpret_cast<Disabled*>(object); }

// The result of what is wrapped; where that raises an Exception, of `rescue(error, *arguments)`.
PyObject* call_wrapped(Disabled* disabled, PyObject* const* arguments, size_t flags, PyObject* names) {
  PyObject* result = PyObject_Vectorcall(disabled->callable, arguments, flags, names);
  if (result != nullptr || disabled->rescue == nullptr || disabled->rescue == Py_None ||
      !PyErr_ExceptionMatches(PyExc_Exception)) {
    return result;
  }
  return boundary(
      [&]() -> PyObject* {
        Ref error = take_error();
        const Py_ssize_t count = PyVectorcall_NARGS(flags);
        Ref given = checked(PyTuple_New(count + 1));
        PyTuple_SET_ITEM(given.get(), 0, error.release());
        for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(given.get(), i + 1, Py_NewRef(arguments[i]));
        return PyObject_Call(disabled->rescue, given.get(), nullptr);
      },
      nullptr);
}

PyObject* disabled_call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  Disabled* disabled = as_disabled(self);
  ThreadState& state = thread_state();
  Ref alive = Ref::share(self);
  if (state.active == nullptr) return call_wrapped(disabled, arguments, flags, names);
  if (disabled->recursive) {
    ActiveScope nothing(state, nullptr);
    return call_wrapped(disabled, arguments, flags, names);
  }
  const Target target = target_of(disabled->callable);
  state.skip_code = target.function != nullptr ? target.function->func_code : nullptr;
  PyObject* result = call_wrapped(disabled, arguments, flags, names);
  state.skip_code = nullptr;
  return result;
}

PyObject* disabled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"callable", "recursive", nullptr};
  PyObject* callable = nullptr;
  int recursive = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:Disabled", const_cast<char**>(names), &callable, &recursive)) {
    return nullptr;
  }
  if (!PyCallable_Check(callable)) return PyErr_Format(PyExc_TypeError, "Disabled needs something that can be called");
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  as_disabled(self)->vectorcall = disabled_call;
  as_disabled(self)->callable = Py_NewRef(callable);
  as_disabled(self)->recursive = static_cast<char>(recursive);
  return self;
}

int disabled_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_disabled(self)->callable);
  Py_VISIT(as_disabled(self)->rescue);
  Py_VISIT(as_disabled(self)->dict);
  return 0;
}

int disabled_clear(PyObject* self) {
  Py_CLEAR(as_disabled(self)->callable);
  Py_CLEAR(as_disabled(self)->rescue);
  Py_CLEAR(as_disabled(self)->dict);
  return 0;
}

void disabled_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_disabled(self)->weak != nullptr) PyObject_ClearWeakRefs(self);
  disabled_clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef disabled_members[] = {
    {"callable", T_OBJECT_EX, offsetof(Disabled, callable), READONLY, "what is called"},
    {"rescue", T_OBJECT, offsetof(Disabled, rescue), 0,
     "called with the error and the arguments where the callable raises, or None"},
    {"recursive", T_BOOL, offsetof(Disabled, recursive), READONLY,
     "whether frames called from it run as they are, too"},
    {"__dictoffset__", T_PYSSIZET, offsetof(Disabled, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Disabled, weak), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Disabled, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot disabled_slots[] = {
    {Py_tp_doc, const_cast<char*>("A callable whose frames run as they are, even inside a region.")},
    {Py_tp_new, reinterpret_cast<void*>(disabled_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(disabled_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(disabled_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(disabled_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to_instance)},
    {Py_tp_members, disabled_members},
    {Py_tp_getset, dict_getset},
    {0, nullptr},
};

PyType_Spec disabled_spec = {"flambeau_capture._C.Disabled", sizeof(Disabled), 0, kCallableFlags, disabled_slots};

// By the qualified names that `rewrite/resume.py` gives.
bool is_part(const PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_qualname);
  if (name == nullptr) throw PythonError();
  return std::strstr(name, ".resume_at_") != nullptr || std::strstr(name, ".round_at_") != nullptr;
}

}  // namespace

CodeEntries* find_record(Region* region, PyCodeObject* code) {
  if (region->last_code == code) return region->last_record;
  if (region->table == nullptr) return nullptr;
  return boundary(
      [&]() -> CodeEntries* {
        std::unique_ptr<CodeEntries>& record = (*region->table)[code];
        if (!record) {
          record = std::make_unique<CodeEntries>();
          record->code = Ref::share(reinterpret_cast<PyObject*>(code));
          record->is_part = is_part(code);
        }
        region->last_code = code;
        region->last_record = record.get();
        return record.get();
      },
      static_cast<CodeEntries*>(nullptr));
}

PyObject* call_region(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  return call_with<run_first_match>(self, arguments, flags, names);
}

PyObject* call_region_as_asked(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  return call_with<run_match>(self, arguments, flags, names);
}

Compiled compile_frame(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view) {
  if (stance_state().stance == Stance::kRunOnly || thread_state().run_only) {
    ++thread_state().runs;  // asked for: no failure of a strict region
    return Compiled::kSkip;
  }
  if (record.compiling) {
    ++thread_state().runs;  // another thread is about to have an entry: this call is no failure
    return Compiled::kBusy;
  }
  if (is_near_limit(PyThreadState_Get())) {
    tell_too_deep(region, reinterpret_cast<PyCodeObject*>(function->func_code));
    return Compiled::kBusy;
  }
  CompileScope compiling(thread_state(), record);
  drop_dead(record);
  const Owner owner = owner_of(view);
  const bool over_limit = is_over_limit(region, record, owner);
  if (over_limit && std::count(record.limit_told.begin(), record.limit_told.end(), owner) > 0) return Compiled::kBusy;
  return boundary(
      [&] {
        Py_ssize_t& calls = record.left_alone[owner];
        // Where nothing may be compiled, what came to nothing before is no new compile.
        const bool settled = stance_state().stance == Stance::kFail && calls > 0;
        if (!over_limit && (settled || is_left_alone(region, calls + 1))) {
          ++calls;
          return Compiled::kSkip;
        }
        Ref answer = ask(region, record, function, view, over_limit);
        if (over_limit) {
          record.limit_told.push_back(owner);
          return Compiled::kBusy;
        }
        if (answer.get() == Py_Ellipsis) {
          ++thread_state().runs;  // put off, which is no failure of a strict region
          return Compiled::kBusy;
        }
        if (answer.get() == Py_None) {
          ++record.left_alone[owner];
          return Compiled::kSkip;
        }
        if (PyBool_Check(answer.get())) {
          record.skip_recursive = answer.get() == Py_True;
          if (owner != 0) record.skipped.insert(owner);
          // Where one owner after the other is left alone, the code is to blame.
          record.skip = owner == 0 || record.skip_recursive ||
                        (record.entries.empty() && record.skipped.size() >= kSkippedOwners);
          return Compiled::kSkip;
        }
        if (!PyTuple_Check(answer.get())) raise(PyExc_TypeError, "a handler answers None, a bool, a tuple or an error");
        const bool once = PyTuple_GET_SIZE(answer.get()) == 2;
        EntryPtr entry = parse_entry(once ? PyTuple_GET_ITEM(answer.get(), 1) : answer.get());
        entry->owner = owner;
        entry->once = once;
        record.has_once |= once;
        record.left_alone.erase(owner);
        record.entries.insert(record.entries.begin(), std::move(entry));
        return Compiled::kEntry;
      },
      Compiled::kError);
}

void tell_too_deep(Region* region, PyCodeObject* code) {
  ThreadState& state = thread_state();
  ++state.runs;  // a call that is nested less has an entry: for a strict region this one is no failure
  if (region->told_too_deep || compat::frames_left(PyThreadState_Get()).left < kFramesToTell) return;
  region->told_too_deep = true;
  tell(region, state, "nested_too_deep", reinterpret_cast<PyObject*>(code));
}

void add_region_types(PyObject* module) {
  call_name = checked(PyUnicode_InternFromString("__call__")).release();
  Ref region = checked(PyType_FromModuleAndSpec(module, &region_spec, nullptr));
  checked(PyModule_AddObjectRef(module, "Region", region.get()));
  region_type = reinterpret_cast<PyTypeObject*>(region.release());
  Ref disabled = checked(PyType_FromModuleAndSpec(module, &disabled_spec, nullptr));
  checked(PyModule_AddObjectRef(module, "Disabled", disabled.get()));
  disabled_type = reinterpret_cast<PyTypeObject*>(disabled.release());
}

}  // namespace flambeau
