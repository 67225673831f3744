// flambeau_runtime._C: the type Executor and the facts of the build.
#include "blocks.hpp"
#include "exceptions.hpp"
#include "graphs.hpp"
#include "inputs.hpp"
#include "ranges.hpp"
#include "recording.hpp"
#include "run.hpp"
#include "watch.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <structmember.h>

#include <unordered_set>

namespace flambeau {
namespace {

// What an Executor object holds; immutable once made, so that calls need no lock.
struct ExecutorState {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::shared_ptr<Program> program;
  std::vector<std::pair<int32_t, at::Tensor>> constants;
  Ref misfit;    // (position, value, scalars, devices) -> replacement
  Ref describe;  // (program, instruction) -> text
  Ref count;     // (inputs) -> raises: the number of inputs is wrong
  Ref ranges;    // (program) -> what it shows in a profiler
};

struct Executor {
  PyObject_HEAD vectorcallfunc vectorcall;
  ExecutorState* state;
};

// Library calls run below autograd and autocast: the program holds their effects already.
struct Guards {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::AutoGradMode no_grad{false};
};

// While a program runs, the first of its CUDA devices is the current one.
struct OnDevices {
  explicit OnDevices(Devices& devices) : devices(devices) { devices.begin(); }
  OnDevices(const OnDevices&) = delete;
  OnDevices& operator=(const OnDevices&) = delete;
  ~OnDevices() { devices.end(); }

  Devices& devices;
};

Ref output_of(const Output& output, const Frame& frame, PyObject* const* inputs) {
  switch (output.kind) {
    case Output::Kind::Tensor: {
      const at::Tensor& tensor = frame.tensor(output.index);
      return tensor.defined() ? checked(THPVariable_Wrap(tensor)) : Ref::share(Py_None);
    }
    case Output::Kind::Scalar: return python_scalar(frame.operand(output.operand));
    case Output::Kind::Input: return Ref::share(inputs[output.index]);
    default: return Ref::share(Py_None);
  }
}

// Take the inputs over from a list and empty it: from here on each lives until the program frees it. Those that are
// handed back as results are kept aside; the answer has them at their positions.
std::vector<Ref> take_over(const Program& program, Frame& frame, PyObject* list) {
  std::vector<Ref> kept(program.inputs.size());
  for (const Output& output : program.outputs) {
    if (output.kind == Output::Kind::Input) kept[output.index] = Ref::share(PyList_GET_ITEM(list, output.index));
  }
  for (const Input& input : program.inputs) {
    if (!input.is_scalar) frame.own(input.reg);
  }
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) throw PythonError();
  return kept;
}

// `list`, where given, holds the inputs and is emptied.
PyObject* run(const ExecutorState& state, PyObject* const* inputs, Position& position, PyObject* list = nullptr) {
  const Program& program = *state.program;
  Frame frame(program);
  for (const auto& [reg, tensor] : state.constants) frame.borrow(reg, tensor);
  bind_inputs(program, frame, inputs, state.misfit.get());
  // Their registers may hold something else at the end.
  c10::SmallVector<at::Tensor, 2> mutated;
  if (program.has_mutated_inputs) {
    for (const Input& input : program.inputs) {
      if (input.mutated) mutated.push_back(frame.tensor(input.reg));
    }
  }
  std::vector<Ref> kept;
  std::vector<PyObject*> held;
  if (list != nullptr) {
    kept = take_over(program, frame, list);
    for (const Ref& input : kept) held.push_back(input.get());
    inputs = held.data();
  }
  std::optional<OpenRange> whole;
  if (is_profiled()) {
    name_ranges(program, state.ranges.get());
    frame.is_profiled = true;
    whole.emplace(program.ranges->whole);
  }
  {
    Gil gil;
    const OnDevices on_devices(frame.devices);
    if (program.calls_library) {
      const Guards guards;
      run_program(program, frame, gil, position);
    } else {
      run_program(program, frame, gil, position);
    }
  }
  for (const at::Tensor& tensor : mutated) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
  Ref result = checked(PyTuple_New(static_cast<Py_ssize_t>(program.outputs.size())));
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    Ref value = output_of(program.outputs[i], frame, inputs);
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), value.release());
  }
  return result.release();
}

// Add to the exception what was running; never replaces the exception.
void annotate(const ExecutorState& state, const Position& position) {
  if (position.instruction < 0) return;
  Ref note;
  {
    ErrorAside aside;
    note = Ref::steal(PyObject_CallFunction(state.describe.get(), "iL", static_cast<int>(position.program),
                                            static_cast<long long>(position.instruction)));
    if (!note) PyErr_Clear();
  }
  if (note) add_note(note.get());
}

PyObject* checked_run(PyObject* self, PyObject* const* args, size_t count, PyObject* list) {
  const ExecutorState& state = *reinterpret_cast<Executor*>(self)->state;
  if (count != state.program->inputs.size()) {
    Ref given = Ref::steal(PyLong_FromSize_t(count));
    if (!given) return nullptr;
    Ref unused = Ref::steal(PyObject_CallOneArg(state.count.get(), given.get()));
    if (unused) PyErr_SetString(PyExc_TypeError, "wrong number of inputs");
    return nullptr;
  }
  Position position;
  PyObject* result = translated([&] { return run(state, args, position, list); });
  if (result == nullptr) annotate(state, position);
  return result;
}

PyObject* executor_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) != 0) {
    PyErr_SetString(PyExc_TypeError, "a compiled program takes positional arguments only");
    return nullptr;
  }
  return checked_run(self, args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), nullptr);
}

PyObject* executor_take(PyObject* self, PyObject* list) {
  if (!PyList_CheckExact(list)) {
    PyErr_SetString(PyExc_TypeError, "take() wants a list of inputs");
    return nullptr;
  }
  return checked_run(self, PySequence_Fast_ITEMS(list), static_cast<size_t>(PyList_GET_SIZE(list)), list);
}

PyMethodDef executor_methods[] = {
    {"take", executor_take, METH_O,
     "Call with a list of inputs, which is emptied: each is freed when it was used last."},
    {nullptr, nullptr, 0, nullptr},
};

// Executor(program, kernels, constants, misfit, describe, count, ranges)
PyObject* executor_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *program, *kernels, *constants, *misfit, *describe, *count, *ranges;
  if (!PyArg_ParseTuple(args, "O!O!O!OOOO", &PyTuple_Type, &program, &PyTuple_Type, &kernels, &PyTuple_Type, &constants,
                        &misfit, &describe, &count, &ranges)) {
    return nullptr;
  }
  return translated([&]() -> PyObject* {
    auto state = std::make_unique<ExecutorState>();
    state->kernels = decode_kernels(kernels);
    state->program = decode_program(program, state->kernels);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
      int reg = 0;
      PyObject* tensor = nullptr;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(constants, i), "iO", &reg, &tensor)) throw PythonError();
      if (!THPVariable_Check(tensor)) raise(PyExc_TypeError, "a constant must be a tensor");
      state->constants.emplace_back(reg, THPVariable_Unpack(tensor));
    }
    state->misfit = Ref::share(misfit);
    state->describe = Ref::share(describe);
    state->count = Ref::share(count);
    state->ranges = Ref::share(ranges);
    Ref self = checked(type->tp_alloc(type, 0));
    auto* executor = reinterpret_cast<Executor*>(self.get());
    executor->vectorcall = executor_call;
    executor->state = state.release();
    return self.release();
  });
}

int visit_program(const Program& program, visitproc visit, void* arg, std::unordered_set<const Program*>& seen) {
  for (const PythonCall& python : program.pythons) {
    Py_VISIT(python.function.get());
    for (const Argument& argument : python.args) Py_VISIT(argument.object.get());
  }
  for (const Subprogram& sub : program.subprograms) {
    for (const auto& nested : sub.programs) {
      // A program of several places has one reference to each of its callables: it is visited for the first of them.
      if (!seen.insert(nested.get()).second) continue;
      if (const int stop = visit_program(*nested, visit, arg, seen)) return stop;
    }
  }
  return 0;
}

int executor_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const ExecutorState* state = reinterpret_cast<Executor*>(self)->state;
  if (state == nullptr) return 0;
  Py_VISIT(state->misfit.get());
  Py_VISIT(state->describe.get());
  Py_VISIT(state->count.get());
  Py_VISIT(state->ranges.get());
  for (const auto& kernel : state->kernels) {
    Py_VISIT(kernel->function.get());
    if (kernel->cuda != nullptr) Py_VISIT(kernel->cuda->provide());
  }
  std::unordered_set<const Program*> seen;
  return visit_program(*state->program, visit, arg, seen);
}

void clear_program(Program& program) {
  for (PythonCall& python : program.pythons) {
    python.function = Ref::share(Py_None);
    for (Argument& argument : python.args) argument.object = Ref();
  }
  for (Subprogram& sub : program.subprograms) {
    // Emptied, so that a program of several places is cleared once.
    for (auto& nested : std::exchange(sub.programs, {})) {
      if (nested != nullptr) clear_program(*nested);
    }
  }
}

// Breaks cycles through Python callables. The object is unreachable then: nobody calls it any more.
int executor_clear(PyObject* self) {
  ExecutorState* state = reinterpret_cast<Executor*>(self)->state;
  if (state == nullptr) return 0;
  for (const auto& kernel : state->kernels) {
    if (kernel->function) kernel->function = Ref::share(Py_None);
    if (kernel->cuda != nullptr) kernel->cuda->forget();
  }
  clear_program(*state->program);
  state->misfit = Ref::share(Py_None);
  state->describe = Ref::share(Py_None);
  state->count = Ref::share(Py_None);
  state->ranges = Ref::share(Py_None);
  return 0;
}

void executor_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  delete std::exchange(reinterpret_cast<Executor*>(self)->state, nullptr);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef executor_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Executor, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot executor_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(executor_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(executor_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(executor_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(executor_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, executor_members},
    {Py_tp_methods, executor_methods},
    {Py_tp_doc, const_cast<char*>("A decoded program: call it with positional tensors and numbers, get a tuple.")},
    {0, nullptr},
};

PyType_Spec executor_spec = {
    "flambeau_runtime._C.Executor", sizeof(Executor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, executor_slots};

PyObject* release_idle_memory(PyObject*, PyObject*) { return PyLong_FromSize_t(BlockCache::instance().release()); }

PyObject* idle_memory_bytes(PyObject*, PyObject*) { return PyLong_FromSize_t(BlockCache::instance().idle_bytes()); }

PyObject* set_idle_memory_limit(PyObject*, PyObject* bytes) {
  const size_t limit = PyLong_AsSize_t(bytes);
  if (limit == static_cast<size_t>(-1) && PyErr_Occurred()) return nullptr;
  BlockCache::instance().set_limit(limit);
  Py_RETURN_NONE;
}

PyObject* set_cuda_driver(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (text == nullptr) return nullptr;
  return translated([&]() -> PyObject* {
    cuda::set_library(text);
    Py_RETURN_NONE;
  });
}

// The tensors over this memory stay what they are but for their elements: who asks for those gets the message.
PyObject* release_memory(PyObject*, PyObject* args) {
  PyObject* tensor = nullptr;
  const char* message = nullptr;
  if (!PyArg_ParseTuple(args, "Os:release_memory", &tensor, &message)) return nullptr;
  return translated([&]() -> PyObject* {
    if (!THPVariable_Check(tensor)) raise(PyExc_TypeError, "release_memory takes a tensor");
    const c10::Storage& storage = THPVariable_Unpack(tensor).storage();
    c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
    impl.set_data_ptr_noswap(c10::DataPtr(nullptr, impl.device()));
    impl.set_nbytes(static_cast<size_t>(0));
    impl.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(message));
    Py_RETURN_NONE;
  });
}

PyMethodDef module_methods[] = {
    {"release_memory", release_memory, METH_VARARGS,
     "Free a tensor's memory; reading or writing elements of it raises the message."},
    {"release_idle_memory", release_idle_memory, METH_NOARGS,
     "Give idle blocks back to the system; returns their bytes."},
    {"idle_memory_bytes", idle_memory_bytes, METH_NOARGS, "Bytes of the blocks kept for the next call."},
    {"set_idle_memory_limit", set_idle_memory_limit, METH_O, "Keep at most this many idle bytes; 0 keeps none."},
    {"set_cuda_driver", set_cuda_driver, METH_O, "Use the CUDA driver library of this name or path."},
    {nullptr, nullptr, 0, nullptr},
};

int module_exec(PyObject* module) {
  Ref type = Ref::steal(PyType_FromModuleAndSpec(module, &executor_spec, nullptr));
  if (!type || PyModule_AddObjectRef(module, "Executor", type.get()) < 0) return -1;
  if (!add_lane(module) || !add_recording_table(module) || !add_watch(module)) return -1;
  return PyModule_AddStringConstant(module, "TORCH_VERSION", FLAMBEAU_TORCH_VERSION);
}

PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(module_exec)},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef module_definition = {PyModuleDef_HEAD_INIT,
                                 "flambeau_runtime._C",
                                 "The native executor.",
                                 0,
                                 module_methods,
                                 module_slots,
                                 nullptr,
                                 nullptr,
                                 nullptr};

}  // namespace
}  // namespace flambeau

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&flambeau::module_definition); }
