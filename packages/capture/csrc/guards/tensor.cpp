// What a tensor must look like, read from its TensorImpl; and torch's global state.
#include "compat.hpp"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>

#include "flambeau/errors.hpp"
#include "guards/node.hpp"

namespace flambeau {
namespace {

PyObject* item(PyObject* tuple, Py_ssize_t index) {
  PyObject* found = PyTuple_GetItem(tuple, index);
  if (found == nullptr) throw PythonError();
  return found;
}

c10::ScalarType dtype_of(PyObject* object) {
  if (!THPDtype_Check(object)) raise(PyExc_TypeError, "expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

std::vector<int64_t> integers(PyObject* tuple) {
  std::vector<int64_t> made;
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    made.push_back(PyLong_AsLongLong(item(tuple, i)));
    if (PyErr_Occurred()) throw PythonError();
  }
  return made;
}

// A negative expectation is a free dimension.
bool matches(const std::vector<int64_t>& expected, c10::IntArrayRef actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] >= 0 && expected[i] != actual[i]) return false;
  }
  return true;
}

// Payload: (type, dtype, device, requires_grad, dispatch keys, sizes, strides or None, pairs of dimensions of which the
// first lies directly behind the second in memory). A size or stride of -1 is free.
class TensorMatch final : public Leaf {
 public:
  TensorMatch(PyObject* payload, int spec)
      : Leaf(spec),
        type_(reinterpret_cast<PyTypeObject*>(item(payload, 0))),
        dtype_(c10::scalarTypeToTypeMeta(dtype_of(item(payload, 1)))),
        device_(c10::kCPU),
        requires_grad_(item(payload, 3) == Py_True),
        keys_(PyLong_AsUnsignedLongLong(item(payload, 4))),
        sizes_(integers(item(payload, 5))) {
    if (PyErr_Occurred()) throw PythonError();
    if (!THPDevice_Check(item(payload, 2))) raise(PyExc_TypeError, "expected a torch.device");
    device_ = reinterpret_cast<THPDevice*>(item(payload, 2))->device;
    strided_ = item(payload, 6) != Py_None;
    if (strided_) strides_ = integers(item(payload, 6));
    if (strided_ && strides_.size() != sizes_.size()) raise(PyExc_ValueError, "sizes and strides differ in length");
    PyObject* pairs = item(payload, 7);
    for (Py_ssize_t i = 0; i < PyTuple_Size(pairs); ++i) {
      const std::vector<int64_t> pair = integers(item(pairs, i));
      for (int64_t dim : pair) {
        if (!strided_ || dim < 0 || dim >= static_cast<int64_t>(sizes_.size()))
          raise(PyExc_ValueError, "there is no such dimension");
      }
      behind_.emplace_back(pair.at(0), pair.at(1));
    }
  }

  bool holds(PyObject* value) const override {
    if (Py_TYPE(value) != type_) return false;
    const at::TensorImpl* tensor = THPVariable_Unpack(value).unsafeGetTensorImpl();
    if (tensor->key_set().raw_repr() != keys_ || tensor->dtype() != dtype_ || tensor->has_symbolic_sizes_strides()) {
      return false;
    }
    try {
      return tensor->requires_grad() == requires_grad_ && tensor->device() == device_ && shape_holds(*tensor);
    } catch (const std::exception&) {
      return false;  // a subclass that cannot say its sizes is not the tensor seen while tracing
    }
  }

 private:
  bool shape_holds(const at::TensorImpl& tensor) const {
    const c10::IntArrayRef sizes = tensor.sizes();
    if (sizes.size() != sizes_.size() || !matches(sizes_, sizes)) return false;
    if (!strided_) return true;
    const c10::IntArrayRef strides = tensor.strides();
    if (!matches(strides_, strides)) return false;
    for (const auto& [dim, other] : behind_) {
      if (strides[dim] != sizes[other] * strides[other]) return false;
    }
    return true;
  }

  PyTypeObject* type_;
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  bool requires_grad_;
  uint64_t keys_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  std::vector<std::pair<int64_t, int64_t>> behind_;
  bool strided_ = false;
};

struct AutocastDevice {
  at::DeviceType device;
  c10::ScalarType dtype;
};

// The same device types in the same order as guards/state.py.
constexpr at::DeviceType kAutocastDevices[] = {at::kCPU, at::kCUDA, at::kXPU, at::kHPU, at::kMPS, at::kMTIA, at::kMAIA};

// NULL until a program enters the first scope: one without any pays for a look at this.
PyObject* watched_scopes = nullptr;

// Payload: (grad, inference, ((device, dtype), ...), autocast cache, deterministic, warn only, default dtype,
// function modes, depth of dispatch modes, whether a function transform is active, torch function enabled,
// a bit for each implementation of attention that is allowed, the namespace of torch.autograd.forward_ad, its level,
// whether products of float32 on a GPU may round to TF32 (-1: anything will do),
// what the scopes around the frame say of recording forward and backward: True, False, None).
class GlobalState final : public Leaf {
 public:
  GlobalState(PyObject* payload, int spec)
      : Leaf(spec),
        grad_(item(payload, 0) == Py_True),
        inference_(item(payload, 1) == Py_True),
        cache_(item(payload, 3) == Py_True),
        deterministic_(item(payload, 4) == Py_True),
        warn_only_(item(payload, 5) == Py_True),
        torch_function_(item(payload, 10) == Py_True),
        dtype_(c10::scalarTypeToTypeMeta(dtype_of(item(payload, 6)))),
        modes_(item(payload, 7)),
        dispatch_modes_(PyLong_AsLongLong(item(payload, 8))),
        transforms_(item(payload, 9) == Py_True),
        attention_(PyLong_AsLongLong(item(payload, 11))),
        forward_ad_(item(payload, 12)),
        dual_level_(item(payload, 13)),
        tf32_products_(PyLong_AsLongLong(item(payload, 14))),
        forward_recorded_(item(item(payload, 15), 0)),
        backward_recorded_(item(item(payload, 15), 1)) {
    if (PyErr_Occurred()) throw PythonError();
    PyObject* on = item(payload, 2);
    for (Py_ssize_t i = 0; i < PyTuple_Size(on); ++i) {
      const char* name = PyUnicode_AsUTF8(item(item(on, i), 0));
      if (name == nullptr) throw PythonError();
      const at::DeviceType device = c10::Device(name).type();
      autocast_.push_back({device, dtype_of(item(item(on, i), 1))});
      enabled_ = enabled_ | key_of(device);
    }
    for (at::DeviceType device : kAutocastDevices) watched_ = watched_ | key_of(device);
  }

  bool holds(PyObject*) const override {
    if (at::GradMode::is_enabled() != grad_ || c10::InferenceMode::is_enabled() != inference_) return false;
    // Autocast is on for a device where its dispatch key is not excluded on this thread.
    if ((watched_ - c10::impl::tls_local_dispatch_key_set().excluded_) != enabled_) return false;
    for (const AutocastDevice& one : autocast_) {
      if (at::autocast::get_autocast_dtype(one.device) != one.dtype) return false;
    }
    if (!autocast_.empty() && at::autocast::is_autocast_cache_enabled() != cache_) return false;
    const at::Context& context = at::globalContext();
    if (context.deterministicAlgorithms() != deterministic_ ||
        context.deterministicAlgorithmsWarnOnly() != warn_only_ || c10::get_default_dtype() != dtype_) {
      return false;
    }
    if (tf32_products_ >= 0 && rounds_products(context) != (tf32_products_ == 1)) return false;
    return allowed_attention(context) == attention_ && modes_hold() && dual_level_holds() && scopes_hold();
  }

 private:
  static c10::DispatchKeySet key_of(at::DeviceType device) {
    return c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(device));
  }

  static int64_t allowed_attention(const at::Context& context) {
    return int64_t{context.userEnabledFlashSDP()} | int64_t{context.userEnabledMemEfficientSDP()} << 1 |
           int64_t{context.userEnabledMathSDP()} << 2 | int64_t{context.userEnabledCuDNNSDP()} << 3;
  }

  // Not `allowTF32CuBLAS`, which raises where a program has set precisions one operator at a time.
  static bool rounds_products(const at::Context& context) {
    return context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
  }

  // `with torch.device(...)` makes a new mode each time: such modes are known by their device.
  static bool makes_tensors_on(PyObject* mode, PyObject* device) {
    if (std::string_view(Py_TYPE(mode)->tp_name) != "DeviceContext") return false;
    const Ref actual = Ref::steal(PyObject_GetAttrString(mode, "device"));
    if (!actual || !THPDevice_Check(actual.get())) {
      PyErr_Clear();
      return false;
    }
    return reinterpret_cast<THPDevice*>(actual.get())->device == reinterpret_cast<THPDevice*>(device)->device;
  }

  bool modes_hold() const {
    using at::impl::PythonTorchFunctionTLS;
    if (PythonTorchFunctionTLS::stack_len() != PyTuple_GET_SIZE(modes_)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modes_); ++i) {
      PyObject* mode = PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter());
      PyObject* expected = PyTuple_GET_ITEM(modes_, i);
      if (mode == expected) continue;
      // One of the program's is known by its class, for each call may make another.
      if (PyType_Check(expected) && Py_TYPE(mode) == reinterpret_cast<PyTypeObject*>(expected)) continue;
      if (!THPDevice_Check(expected) || !makes_tensors_on(mode, expected)) return false;
    }
    const bool enabled = PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED;
    return enabled == torch_function_ && c10::impl::TorchDispatchModeTLS::stack_len() == dispatch_modes_ &&
           c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) == transforms_;
  }

  // Python keeps one object for each small int.
  bool dual_level_holds() const {
    const uint64_t version = compat::version_of_dict(forward_ad_);
    if (version == forward_ad_version_.load(std::memory_order_relaxed)) return true;
    static PyObject* const name = PyUnicode_InternFromString("_current_level");
    if (PyDict_GetItemWithError(forward_ad_, name) != dual_level_) return false;
    forward_ad_version_.store(version, std::memory_order_relaxed);
    return true;
  }

  bool scopes_hold() const {
    if (watched_scopes == nullptr) return forward_recorded_ == Py_None && backward_recorded_ == Py_None;
    PyObject* found = nullptr;
    if (PyContextVar_Get(watched_scopes, nullptr, &found) < 0) {
      PyErr_Clear();
      return false;
    }
    const Ref said = Ref::steal(found);
    return PyTuple_GET_ITEM(said.get(), 0) == forward_recorded_ &&
           PyTuple_GET_ITEM(said.get(), 1) == backward_recorded_;
  }

  bool grad_, inference_, cache_, deterministic_, warn_only_, torch_function_;
  caffe2::TypeMeta dtype_;
  PyObject* modes_;
  int64_t dispatch_modes_;
  bool transforms_;
  int64_t attention_;
  PyObject* forward_ad_;
  PyObject* dual_level_;
  int64_t tf32_products_;
  PyObject* forward_recorded_;
  PyObject* backward_recorded_;
  mutable std::atomic<uint64_t> forward_ad_version_{0};
  c10::DispatchKeySet enabled_;
  c10::DispatchKeySet watched_;
  std::vector<AutocastDevice> autocast_;
};

}  // namespace

std::unique_ptr<Leaf> make_tensor_leaf(PyObject* payload, int spec) {
  return std::make_unique<TensorMatch>(payload, spec);
}

void watch_scopes(PyObject* variable) { Py_XSETREF(watched_scopes, Py_NewRef(variable)); }

std::unique_ptr<Leaf> make_state_leaf(PyObject* payload, int spec) {
  return std::make_unique<GlobalState>(payload, spec);
}

bool tensor_extent(PyObject* object, Access what, int dim, int64_t* result) {
  if (!THPVariable_Check(object)) return false;
  const at::TensorImpl* tensor = THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (tensor->has_symbolic_sizes_strides()) return false;
  try {
    if (what == Access::kTensorOffset) {
      *result = tensor->storage_offset();
      return true;
    }
    const c10::IntArrayRef extents = what == Access::kTensorSize ? tensor->sizes() : tensor->strides();
    const int64_t place = dim < 0 ? dim + static_cast<int64_t>(extents.size()) : dim;
    if (place < 0 || place >= static_cast<int64_t>(extents.size())) return false;
    *result = extents[static_cast<size_t>(place)];
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Memory memory_of(PyObject* object) {
  if (!THPVariable_Check(object)) return {object, 0, false};
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.has_storage()) return {object, 0, false};
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr) return {storage, 0, false};
  static const at::DeleterFnPtr own = c10::GetDefaultCPUAllocator()->raw_deleter();
  return {data.get(), storage->sym_nbytes().maybe_as_int().value_or(0),
          data.device().is_cpu() && data.get_deleter() != own};
}

}  // namespace flambeau
