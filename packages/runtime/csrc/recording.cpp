#include "recording.hpp"

#include <structmember.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <cstddef>

namespace flambeau {

bool truth(PyObject* object) {
  const int value = PyObject_IsTrue(object);
  if (value < 0) throw PythonError();
  return value == 1;
}

namespace {

Ref attribute(PyObject* object, const char* name) { return checked(PyObject_GetAttrString(object, name)); }

int64_t integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

const at::Tensor& tensor_of(PyObject* object) {
  if (!THPVariable_Check(object)) raise(PyExc_TypeError, "a recording names a tensor that is none");
  return THPVariable_Unpack(object);
}

// Call `body` with every item of a tuple.
template <typename Body>
void each(const Ref& tuple, Body&& body) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple.get()); ++i) body(PyTuple_GET_ITEM(tuple.get(), i));
  if (PyErr_Occurred()) throw PythonError();
}

int64_t span(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

std::vector<int64_t> integers(const Ref& tuple) {
  std::vector<int64_t> values;
  each(tuple, [&values](PyObject* item) { values.push_back(integer(item)); });
  return values;
}

Fact read_fact(PyObject* item) {
  Ref dtype = attribute(item, "dtype"), device = attribute(item, "device");
  if (!THPDtype_Check(dtype.get()) || !THPDevice_Check(device.get()))
    raise(PyExc_TypeError, "a fact without a dtype or device");
  return {static_cast<size_t>(integer(attribute(item, "position").get())),
          reinterpret_cast<THPDtype*>(dtype.get())->scalar_type, reinterpret_cast<THPDevice*>(device.get())->device,
          integers(attribute(item, "sizes")), integers(attribute(item, "strides"))};
}

Copied read_copied(PyObject* item) {
  Ref placeholder = attribute(item, "placeholder");
  const at::Tensor& tensor = tensor_of(placeholder.get());
  const int64_t elements = span(tensor.sizes(), tensor.strides());
  return {static_cast<size_t>(integer(attribute(item, "position").get())),
          tensor,
          tensor.data_ptr(),
          static_cast<size_t>(elements) * tensor.itemsize(),
          truth(attribute(item, "back").get()),
          elements == tensor.numel()};
}

// The place of a storage among those of the entry; a new one is added with Python's object for it.
size_t storage_index(Entry& entry, const at::Tensor& tensor, PyObject* object) {
  for (size_t i = 0; i < entry.own.size(); ++i) {
    if (entry.own[i].storage.is_alias_of(tensor.storage())) return i;
  }
  entry.own.push_back({tensor.storage(), checked(PyObject_CallMethod(object, "untyped_storage", nullptr))});
  return entry.own.size() - 1;
}

Result read_result(Entry& entry, PyObject* item) {
  Ref kind = attribute(item, "kind"), sample = attribute(item, "sample");
  Result result;
  result.index = static_cast<size_t>(std::max<int64_t>(0, integer(attribute(item, "position").get())));
  result.shift = integer(attribute(item, "shift").get());
  const auto is = [&kind](const char* name) { return PyUnicode_CompareWithASCIIString(kind.get(), name) == 0; };
  if (is("own") || is("alias")) {
    const at::Tensor& tensor = tensor_of(sample.get());
    result.kind = is("own") ? Result::Kind::Own : Result::Kind::Alias;
    result.layout = {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.dtype()};
    if (result.kind == Result::Kind::Own) result.index = storage_index(entry, tensor, sample.get());
  } else if (is("input")) {
    result.kind = Result::Kind::Input;
  } else {
    result.value = sample;
  }
  return result;
}

// ---- lanes ----------------------------------------------------------------------------------------------------------

// Lane(stream)
PyObject* lane_new(PyTypeObject* type, PyObject* args, PyObject*) {
  unsigned long long stream = 0;
  if (!PyArg_ParseTuple(args, "K", &stream)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) reinterpret_cast<Lane*>(self)->stream = reinterpret_cast<void*>(stream);
  return self;
}

void lane_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static_assert(sizeof(void*) == sizeof(unsigned long long), "a stream's handle is shown as an integer of this size");

PyMemberDef lane_members[] = {
    {"stream", T_ULONGLONG, offsetof(Lane, stream), 0, "The stream of the last replay."},
    {"running", T_BOOL, offsetof(Lane, running), 0, "Whether a replay is being queued."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot lane_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(lane_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(lane_dealloc)},
    {Py_tp_members, lane_members},
    {Py_tp_doc, const_cast<char*>("Recordings that share scratch memory: their replays never overlap.")},
    {0, nullptr},
};

PyType_Spec lane_spec = {"flambeau_runtime._C.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                         lane_slots};

}  // namespace

bool add_lane(PyObject* module) {
  Ref type = Ref::steal(PyType_FromModuleAndSpec(module, &lane_spec, nullptr));
  return type && PyModule_AddObjectRef(module, "Lane", type.get()) == 0;
}

std::shared_ptr<Entry> read_recording(PyObject* recording) {
  auto entry = std::make_shared<Entry>();
  entry->recording = Ref::share(recording);
  entry->replay = attribute(recording, "replay");
  entry->lane_object = attribute(recording, "lane");
  if (Py_TYPE(entry->lane_object.get())->tp_new != lane_new) raise(PyExc_TypeError, "a recording's lane is not native");
  entry->lane = reinterpret_cast<Lane*>(entry->lane_object.get());
  each(attribute(recording, "scalars"), [&](PyObject* pair) {
    entry->numbers.push_back(
        {static_cast<size_t>(integer(PyTuple_GetItem(pair, 0))), Ref::share(PyTuple_GetItem(pair, 1))});
  });
  each(attribute(recording, "fixed"), [&](PyObject* pair) {
    const void* address = PyLong_AsVoidPtr(PyTuple_GetItem(pair, 1));
    entry->fixed.push_back({static_cast<size_t>(integer(PyTuple_GetItem(pair, 0))), address});
  });
  each(attribute(recording, "tensors"), [&](PyObject* item) { entry->facts.push_back(read_fact(item)); });
  each(attribute(recording, "copied"), [&](PyObject* item) { entry->copied.push_back(read_copied(item)); });
  each(attribute(recording, "mutated"),
       [&](PyObject* item) { entry->mutated.push_back(static_cast<size_t>(integer(item))); });
  each(attribute(recording, "results"), [&](PyObject* item) { entry->results.push_back(read_result(*entry, item)); });
  for (size_t i = 0; i < entry->own.size(); ++i) {
    entry->own[i].lent = truth(checked(PyObject_CallMethod(recording, "lends", "n", static_cast<Py_ssize_t>(i))).get());
  }
  return entry;
}

}  // namespace flambeau
