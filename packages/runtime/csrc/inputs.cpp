#include "inputs.hpp"

#include "special_keys.hpp"

namespace flambeau {
namespace {

using c10::DispatchKey;

int64_t wanted(const InputDim& dim, const Frame& frame) {
  return dim.kind == InputDim::Kind::Register ? frame.scalar(static_cast<int32_t>(dim.value)).as_int() : dim.value;
}

// A one-element tensor on the CPU may stand for one on a CUDA device: what reads it there copies it (see launch_cuda).
bool stands_for_cuda(const Input& input, const c10::TensorImpl& impl) {
  return !input.mutated && input.device.is_cuda() && impl.device().is_cpu() && impl.dim() == 0;
}

bool fits_device(const Input& input, const c10::TensorImpl& impl, Frame& frame) {
  const c10::Device device = impl.device();
  if (device.type() != input.device.type()) return stands_for_cuda(input, impl);
  return !device.is_cuda() || frame.devices.bind(static_cast<size_t>(input.device.index()), device.index());
}

bool fits(const Input& input, const at::Tensor& tensor, Frame& frame) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // A weight that a library has packed has neither sizes of its own nor strides: only the library's calls read it.
  const bool is_packed = !input.checks_sizes && impl.key_set().has(DispatchKey::MkldnnCPU);
  if (!is_packed && impl.key_set().has_any(special_keys())) return false;
  if (input.checks_dtype && impl.dtype() != c10::scalarTypeToTypeMeta(input.dtype)) return false;
  if (input.checks_device && !fits_device(input, impl, frame)) return false;
  if (!input.checks_sizes) return true;
  const c10::IntArrayRef sizes = impl.sizes();
  if (sizes.size() != input.sizes.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (input.sizes[i].kind != InputDim::Kind::Any && wanted(input.sizes[i], frame) != sizes[i]) return false;
  }
  if (!input.checks_strides) return true;
  const c10::IntArrayRef strides = impl.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const InputDim& dim = input.strides[i];
    if (dim.kind == InputDim::Kind::Any || sizes[i] == 1) continue;
    if (wanted(dim, frame) != strides[i] && impl.numel() != 0) return false;
  }
  return true;
}

Ref replacement(const Program& program, PyObject* misfit, Py_ssize_t position, PyObject* value, const Frame& frame) {
  Ref index = checked(PyLong_FromSsize_t(position));
  Ref scalars = scalars_tuple(frame);
  Ref devices = checked(PyTuple_New(static_cast<Py_ssize_t>(program.devices.size())));
  for (size_t slot = 0; slot < program.devices.size(); ++slot) {
    const c10::DeviceIndex ordinal = frame.devices[slot];
    Ref known = ordinal == Devices::kUnknown ? Ref::share(Py_None) : checked(PyLong_FromLong(ordinal));
    PyTuple_SET_ITEM(devices.get(), static_cast<Py_ssize_t>(slot), known.release());
  }
  return checked(PyObject_CallFunctionObjArgs(misfit, index.get(), value, scalars.get(), devices.get(), nullptr));
}

void bind_scalar(const Program& program, Frame& frame, size_t i, PyObject* value, PyObject* misfit) {
  const int32_t reg = program.inputs[i].reg;
  if (PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBool_Check(value)) {
    frame.set(reg, value_of(value));
  } else {
    frame.set(reg, value_of(replacement(program, misfit, static_cast<Py_ssize_t>(i), value, frame).get()));
  }
}

void bind_tensor(const Program& program, Frame& frame, size_t i, PyObject* value, PyObject* misfit) {
  const Input& input = program.inputs[i];
  if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    if (fits(input, tensor, frame)) {
      frame.borrow(input.reg, tensor);
      return;
    }
  }
  Ref used = replacement(program, misfit, static_cast<Py_ssize_t>(i), value, frame);
  if (!THPVariable_Check(used.get())) raise(PyExc_TypeError, "a replaced input must be a tensor");
  if (input.checks_device) fits_device(input, *THPVariable_Unpack(used.get()).unsafeGetTensorImpl(), frame);
  frame.set(input.reg, at::Tensor(THPVariable_Unpack(used.get())));
}

}  // namespace

Ref python_scalar(const Value& value) {
  if (value.is_float()) return checked(PyFloat_FromDouble(value.d));
  if (value.kind == Kind::Bool) return Ref::share(value.i != 0 ? Py_True : Py_False);
  return checked(PyLong_FromLongLong(value.i));
}

Ref scalars_tuple(const Frame& frame) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(frame.scalar_count())));
  for (size_t i = 0; i < frame.scalar_count(); ++i) {
    Ref value = python_scalar(frame.scalar(static_cast<int32_t>(i)));
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), value.release());
  }
  return tuple;
}

void bind_inputs(const Program& program, Frame& frame, PyObject* const* inputs, PyObject* misfit) {
  // Sizes may be compared with scalar inputs, wherever those stand.
  if (program.has_scalar_inputs) {
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      if (program.inputs[i].is_scalar) bind_scalar(program, frame, i, inputs[i], misfit);
    }
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (!program.inputs[i].is_scalar) bind_tensor(program, frame, i, inputs[i], misfit);
  }
}

}  // namespace flambeau
