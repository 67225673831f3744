// Whether tensors are those of before, unchanged.
//
// In: the inputs of a call, and which of them are watched. Out: at a later call, whether these are the same tensors
// over the same memory, to which nothing was written as autograd counts writes. They are not kept alive, nor their
// memory: only the places of their records and their storages' are held, so that no others can have these. Memory that
// was given back meanwhile (`release_memory`) holds what it held.
#include "watch.hpp"

#include <c10/core/TensorImpl.h>

#include <vector>

#include "exceptions.hpp"

namespace flambeau {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Seen {
  Py_ssize_t place;
  WeakTensor tensor;
  WeakStorage storage;
  const c10::TensorImpl* tensor_record;
  const c10::StorageImpl* storage_record;
  uint32_t version;
  const void* address;
};

struct Watch { PyObject_HEAD std::vector<Seen>* seen; };

// Of a tensor whose memory was given back there is none.
bool is_released(const at::Tensor& tensor) { return tensor.numel() != 0 && tensor.storage().nbytes() == 0; }

bool holds(const Seen& seen, const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl() != seen.tensor_record || tensor.is_inference() || tensor._version() != seen.version)
    return false;
  if (tensor.storage().unsafeGetStorageImpl() != seen.storage_record) return false;
  return is_released(tensor) || tensor.const_data_ptr() == seen.address;
}

const at::Tensor& tensor_at(PyObject* inputs, Py_ssize_t place) {
  if (place < 0 || place >= PyTuple_GET_SIZE(inputs)) raise(PyExc_IndexError, "a watched input is not there");
  PyObject* item = PyTuple_GET_ITEM(inputs, place);
  if (!THPVariable_Check(item)) raise(PyExc_TypeError, "a watched input is no tensor");
  return THPVariable_Unpack(item);
}

// Watch(inputs, places)
PyObject* watch_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *inputs, *places;
  if (!PyArg_ParseTuple(args, "O!O!:Watch", &PyTuple_Type, &inputs, &PyTuple_Type, &places)) return nullptr;
  return translated([&]() -> PyObject* {
    auto seen = std::make_unique<std::vector<Seen>>();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i) {
      const Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
      if (place == -1 && PyErr_Occurred()) throw PythonError();
      const at::Tensor& tensor = tensor_at(inputs, place);
      const uint32_t version = tensor.is_inference() ? 0 : tensor._version();
      c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      seen->push_back({place, WeakTensor(tensor.getIntrusivePtr()), tensor.storage().getWeakStorageImpl(),
                       tensor.unsafeGetTensorImpl(), storage, version, tensor.const_data_ptr()});
    }
    Ref self = checked(type->tp_alloc(type, 0));
    reinterpret_cast<Watch*>(self.get())->seen = seen.release();
    return self.release();
  });
}

// Of tensors that inference mode made writes are not counted: they never hold.
PyObject* watch_holds(PyObject* self, PyObject* inputs) {
  if (!PyTuple_CheckExact(inputs)) {
    PyErr_SetString(PyExc_TypeError, "holds() wants the tuple of inputs");
    return nullptr;
  }
  return translated([&]() -> PyObject* {
    for (const Seen& seen : *reinterpret_cast<Watch*>(self)->seen) {
      if (!holds(seen, tensor_at(inputs, seen.place))) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
  });
}

void watch_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Watch*>(self)->seen;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef watch_methods[] = {
    {"holds", watch_holds, METH_O, "Whether the watched ones of a tuple of inputs are those of before, unchanged."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot watch_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(watch_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(watch_dealloc)},
    {Py_tp_methods, watch_methods},
    {Py_tp_doc,
     const_cast<char*>(
         "Watch(inputs, places): these inputs, their versions and addresses; the tensors are not kept alive.")},
    {0, nullptr},
};

PyType_Spec watch_spec = {"flambeau_runtime._C.Watch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                          watch_slots};

}  // namespace

bool add_watch(PyObject* module) {
  Ref type = Ref::steal(PyType_FromModuleAndSpec(module, &watch_spec, nullptr));
  return type && PyModule_AddObjectRef(module, "Watch", type.get()) == 0;
}

}  // namespace flambeau
