#include "graphs.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/SmallVector.h>
#include <structmember.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "copy_kernel.hpp"
#include "cuda.hpp"
#include "devices.hpp"
#include "exceptions.hpp"
#include "recording.hpp"
#include "scalar.hpp"
#include "special_keys.hpp"

namespace flambeau {
namespace {

using c10::DispatchKey;

struct TableState {
  Py_ssize_t count = 0;
  Ref miss, blocked, stream, follow;
  std::vector<std::shared_ptr<Entry>> entries;  // shared: one may be removed while it is played
  bool running = false;
};

struct Table {
  PyObject_HEAD vectorcallfunc vectorcall;
  TableState* state;
};

// ---- does it fit? ---------------------------------------------------------------------------------------------------

// The same type and value; zeros of different sign are different numbers, NaNs are one.
bool same_number(PyObject* given, PyObject* recorded) {
  if (given == recorded) return true;
  if (Py_TYPE(given) != Py_TYPE(recorded)) return false;
  if (PyFloat_CheckExact(given)) {
    const double x = PyFloat_AS_DOUBLE(given), y = PyFloat_AS_DOUBLE(recorded);
    return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
  }
  const int equal = PyObject_RichCompareBool(given, recorded, Py_EQ);
  if (equal < 0) throw PythonError();
  return equal == 1;
}

// The tensor behind an input, null where that is something else than plain strided memory.
const at::Tensor* plain(PyObject* object) {
  if (!THPVariable_Check(object)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.unsafeGetTensorImpl()->key_set().has_any(special_keys()) ? nullptr : &tensor;
}

bool fits(const Entry& entry, PyObject* const* inputs) {
  // Addresses first: where one program serves many sets of parameters, they tell the recordings apart.
  for (const Fixed& fixed : entry.fixed) {
    const at::Tensor* tensor = plain(inputs[fixed.position]);
    if (tensor == nullptr || tensor->data_ptr() != fixed.address) return false;
  }
  for (const Fact& fact : entry.facts) {
    const at::Tensor* tensor = plain(inputs[fact.position]);
    if (tensor == nullptr) return false;
    const c10::TensorImpl& impl = *tensor->unsafeGetTensorImpl();
    if (impl.dtype() != c10::scalarTypeToTypeMeta(fact.dtype) || impl.device() != fact.device) return false;
    if (impl.sizes() != c10::IntArrayRef(fact.sizes) || impl.strides() != c10::IntArrayRef(fact.strides)) return false;
  }
  for (const Number& number : entry.numbers) {
    if (!same_number(inputs[number.position], number.value.get())) return false;
  }
  return true;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

struct Run {
  const void* source;
  void* target;
  uint64_t bytes;
};

struct Runs { Run runs[kCopies]; };

// Copies of runs of bytes that go out together.
class Copies {
 public:
  Copies(c10::Device device, void* stream) : device_(device), stream_(stream) {}

  void add(const void* source, void* target, size_t bytes) {
    if (bytes == 0 || source == target) return;
    if (!device_.is_cuda()) {
      std::memcpy(target, source, bytes);
      return;
    }
    table_.runs[count_++] = {source, target, bytes};
    longest_ = std::max(longest_, bytes);
    if (count_ == kCopies) flush();
  }

  void flush() {
    if (count_ == 0) return;
    static const cuda::Image image = [] {
      cuda::Image made;
      made.key = "flambeau_copy";
      made.binary = kCopyKernel;
      made.name = "flambeau_copy";
      made.threads = 256;
      return made;
    }();
    constexpr uint64_t block_bytes = uint64_t{256} * 16, most_blocks = 1056;
    const uint64_t blocks = std::clamp<uint64_t>((longest_ + block_bytes - 1) / block_bytes, 1, most_blocks);
    const uint32_t grid[3] = {static_cast<uint32_t>(blocks), count_, 1};
    void* parameters[] = {&table_};
    cuda::launch(cuda::load(image, device_.index()), grid, stream_, parameters);
    count_ = 0;
    longest_ = 0;
  }

 private:
  c10::Device device_;
  void* stream_;
  Runs table_;
  uint32_t count_ = 0;
  size_t longest_ = 0;
};

// ---- playing --------------------------------------------------------------------------------------------------------

at::Tensor over(const c10::Storage& storage, const Layout& layout, int64_t offset) {
  const auto key = storage.device().is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU;
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), layout.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides, offset);
  return tensor;
}

c10::Storage copy_of(const c10::Storage& storage, Copies& copies) {
  const size_t bytes = storage.nbytes();
  c10::Allocator* allocator =
      storage.device().is_cuda() ? cuda_allocator() : c10::GetAllocator(storage.device().type());
  c10::Storage made(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                          allocator->allocate(bytes), allocator, /*resizable=*/true));
  copies.add(storage.data(), made.mutable_data(), bytes);
  return made;
}

Ref result_of(const Result& result, const c10::SmallVectorImpl<c10::Storage>& storages, PyObject* const* inputs) {
  switch (result.kind) {
    case Result::Kind::Own:
      return checked(THPVariable_Wrap(over(storages[result.index], result.layout, result.layout.offset)));
    case Result::Kind::Alias: {
      const at::Tensor& base = THPVariable_Unpack(inputs[result.index]);
      const auto bytes = base.storage_offset() * static_cast<int64_t>(base.itemsize());
      const int64_t offset = bytes / static_cast<int64_t>(result.layout.dtype.itemsize()) + result.shift;
      return checked(THPVariable_Wrap(over(base.storage(), result.layout, offset)));
    }
    case Result::Kind::Input: return Ref::share(inputs[result.index]);
    default: return result.value;
  }
}

void* current_stream(const TableState& state, const Entry& entry) {
  if (state.stream.get() == Py_None) {
    const c10::Device device = entry.facts.empty() ? c10::Device(c10::kCUDA, 0) : entry.facts[0].device;
    const auto* guard = c10::impl::getDeviceGuardImpl(c10::kCUDA);
    return guard->getStreamNativeHandle(guard->getStream(device));
  }
  Ref handle = checked(PyObject_CallNoArgs(state.stream.get()));
  return PyLong_AsVoidPtr(handle.get());
}

void write_back(const Entry& entry, PyObject* const* inputs, Copies& copies) {
  for (const Copied& item : entry.copied) {
    if (!item.back) continue;
    const at::Tensor& tensor = THPVariable_Unpack(inputs[item.position]);
    if (item.dense) {
      copies.add(item.memory, tensor.data_ptr(), item.bytes);
    } else {
      // The gaps between its elements may belong to someone else.
      const at::AutoDispatchBelowADInplaceOrView below;
      const c10::AutoGradMode no_grad{false};
      tensor.copy_(item.placeholder);
    }
  }
}

void follow(const TableState& state, void* stream) {
  Ref last = checked(PyLong_FromVoidPtr(stream));
  checked(PyObject_CallOneArg(state.follow.get(), last.get()));
}

// Let `stream` wait for the lane's last replay, and for readers of this entry's last results: they may have been queued
// where those were made after the lane's next replay, which then did not wait for them.
void queue_after(const TableState& state, Entry& entry, void* stream) {
  Lane& lane = *entry.lane;
  if (lane.stream != stream) follow(state, lane.stream);
  if (entry.stream != stream && entry.stream != lane.stream) follow(state, entry.stream);
  lane.stream = entry.stream = stream;
}

PyObject* play(TableState& state, Entry& entry, PyObject* const* inputs) {
  struct Running {
    Running(bool& program, bool& lane) : program(program), lane(lane) { program = lane = true; }
    ~Running() { program = lane = false; }
    bool &program, &lane;
  } running(state.running, entry.lane->running);
  void* stream = current_stream(state, entry);
  queue_after(state, entry, stream);
  const c10::Device device = entry.facts.empty() ? c10::Device(c10::kCPU) : entry.facts[0].device;
  Copies copies(device, stream);
  for (const Copied& item : entry.copied) {
    copies.add(THPVariable_Unpack(inputs[item.position]).const_data_ptr(), item.memory, item.bytes);
  }
  copies.flush();
  checked(PyObject_CallNoArgs(entry.replay.get()));
  c10::SmallVector<c10::Storage, 8> storages;
  for (const Own& own : entry.own) storages.push_back(own.lent ? own.storage : copy_of(own.storage, copies));
  write_back(entry, inputs, copies);
  copies.flush();
  Ref results = checked(PyTuple_New(static_cast<Py_ssize_t>(entry.results.size())));
  for (size_t i = 0; i < entry.results.size(); ++i) {
    Ref value = result_of(entry.results[i], storages, inputs);
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), value.release());
  }
  for (const size_t position : entry.mutated) {
    const at::Tensor& tensor = THPVariable_Unpack(inputs[position]);
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
  return results.release();
}

// A device that is not the current one is left to Python: launching there takes switching to it.
bool on_current_device(const TableState& state, const Entry& entry) {
  if (state.stream.get() != Py_None || entry.facts.empty()) return true;
  return c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice() == entry.facts[0].device;
}

std::shared_ptr<Entry> ready(TableState& state, PyObject* const* inputs, Py_ssize_t count) {
  if (state.running || count != state.count || state.entries.empty()) return nullptr;
  Ref blocked = checked(PyObject_CallNoArgs(state.blocked.get()));
  if (truth(blocked.get())) return nullptr;
  for (const std::shared_ptr<Entry>& entry : state.entries) {
    if (entry->lane->running || !fits(*entry, inputs)) continue;
    if (on_current_device(state, *entry) && !entry->held()) return entry;
  }
  return nullptr;
}

PyObject* table_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  TableState& state = *reinterpret_cast<Table*>(self)->state;
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (names != nullptr && PyTuple_GET_SIZE(names) != 0) {
    PyErr_SetString(PyExc_TypeError, "a compiled program takes positional arguments only");
    return nullptr;
  }
  Ref alive = Ref::share(self);
  return translated([&]() -> PyObject* {
    const std::shared_ptr<Entry> entry = ready(state, args, count);
    if (entry != nullptr) return play(state, *entry, args);
    return PyObject_Vectorcall(state.miss.get(), args, static_cast<size_t>(count), nullptr);
  });
}

// ---- the type -------------------------------------------------------------------------------------------------------

// RecordingTable(inputs, miss, blocked, stream, follow)
PyObject* table_new(PyTypeObject* type, PyObject* args, PyObject*) {
  Py_ssize_t count = 0;
  PyObject *miss, *blocked, *stream, *follow;
  if (!PyArg_ParseTuple(args, "nOOOO", &count, &miss, &blocked, &stream, &follow)) return nullptr;
  return translated([&]() -> PyObject* {
    auto state = std::make_unique<TableState>();
    state->count = count;
    state->miss = Ref::share(miss);
    state->blocked = Ref::share(blocked);
    state->stream = Ref::share(stream);
    state->follow = Ref::share(follow);
    Ref self = checked(type->tp_alloc(type, 0));
    auto* table = reinterpret_cast<Table*>(self.get());
    table->vectorcall = table_call;
    table->state = state.release();
    return self.release();
  });
}

PyObject* table_add(PyObject* self, PyObject* recording) {
  TableState& state = *reinterpret_cast<Table*>(self)->state;
  return translated([&]() -> PyObject* {
    std::shared_ptr<Entry> entry = read_recording(recording);
    entry->stream = current_stream(state, *entry);
    for (Own& own : entry->own) own.resting = own.counts();
    state.entries.push_back(std::move(entry));
    Py_RETURN_NONE;
  });
}

PyObject* table_remove(PyObject* self, PyObject* recording) {
  TableState& state = *reinterpret_cast<Table*>(self)->state;
  for (size_t i = 0; i < state.entries.size(); ++i) {
    if (state.entries[i]->recording.get() != recording) continue;
    // Taken out first: what dies with it may run Python code.
    const std::shared_ptr<Entry> gone = std::move(state.entries[i]);
    state.entries.erase(state.entries.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  Py_RETURN_NONE;
}

PyObject* table_play(PyObject* self, PyObject* args) {
  TableState& state = *reinterpret_cast<Table*>(self)->state;
  PyObject *recording, *inputs;
  if (!PyArg_ParseTuple(args, "OO!", &recording, &PyTuple_Type, &inputs)) return nullptr;
  return translated([&]() -> PyObject* {
    for (size_t i = 0; i < state.entries.size(); ++i) {
      const std::shared_ptr<Entry> entry = state.entries[i];
      if (entry->recording.get() != recording) continue;
      if (state.running || entry->lane->running) Py_RETURN_NONE;
      return play(state, *entry, &PyTuple_GET_ITEM(inputs, 0));
    }
    raise(PyExc_LookupError, "the table has no such recording");
  });
}

PyObject* table_held(PyObject* self, PyObject* recording) {
  const TableState& state = *reinterpret_cast<Table*>(self)->state;
  return translated([&]() -> PyObject* {
    Ref numbers = checked(PyList_New(0));
    for (const std::shared_ptr<Entry>& entry : state.entries) {
      if (entry->recording.get() != recording) continue;
      for (size_t i = 0; i < entry->own.size(); ++i) {
        if (entry->own[i].held()) checked(PyList_Append(numbers.get(), checked(PyLong_FromSize_t(i)).get()));
      }
    }
    return PyList_AsTuple(numbers.get());
  });
}

PyObject* table_running(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Table*>(self)->state->running ? 1 : 0);
}

int table_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const TableState* state = reinterpret_cast<Table*>(self)->state;
  if (state == nullptr) return 0;
  for (const Ref* ref : {&state->miss, &state->blocked, &state->stream, &state->follow}) Py_VISIT(ref->get());
  for (const std::shared_ptr<Entry>& entry : state->entries) {
    Py_VISIT(entry->recording.get());
    Py_VISIT(entry->replay.get());
  }
  return 0;
}

// Breaks cycles through `miss`. The object is unreachable then: nobody calls it any more.
int table_clear(PyObject* self) {
  TableState* state = reinterpret_cast<Table*>(self)->state;
  if (state == nullptr) return 0;
  const std::vector<std::shared_ptr<Entry>> gone = std::exchange(state->entries, {});
  for (Ref* ref : {&state->miss, &state->blocked, &state->stream, &state->follow}) *ref = Ref::share(Py_None);
  return 0;
}

void table_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  delete std::exchange(reinterpret_cast<Table*>(self)->state, nullptr);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef table_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Table, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMethodDef table_methods[] = {
    {"add", table_add, METH_O, "Take a recording; its results must not be referenced by anything but the recording."},
    {"remove", table_remove, METH_O, "Forget a recording."},
    {"held", table_held, METH_O, "The numbers of a recording's storages that somebody still refers to."},
    {"play", table_play, METH_VARARGS,
     "play(recording, inputs): replay one recording that fits and is free; None while its lane is running."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef table_properties[] = {
    {"running", table_running, nullptr, "Whether a replay is going on.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot table_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(table_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(table_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(table_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(table_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, table_members},
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_properties},
    {Py_tp_doc, const_cast<char*>("The recordings of one program: call it with positional tensors and numbers.")},
    {0, nullptr},
};

PyType_Spec table_spec = {
    "flambeau_runtime._C.RecordingTable", sizeof(Table), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, table_slots};

}  // namespace

bool add_recording_table(PyObject* module) {
  Ref type = Ref::steal(PyType_FromModuleAndSpec(module, &table_spec, nullptr));
  return type && PyModule_AddObjectRef(module, "RecordingTable", type.get()) == 0;
}

}  // namespace flambeau
