#include "run.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <atomic>

#include "blocks.hpp"
#include "inputs.hpp"
#include "ranges.hpp"

namespace flambeau {
namespace {

using c10::IValue;

// Elements from the first to the last that sizes and strides reach; 0 for an empty tensor.
int64_t reach(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) throw ProgramError(ProgramError::Type::Runtime, "a size or stride is negative");
    if (sizes[i] == 0) return 0;
    int64_t step = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last)) {
      throw ProgramError(ProgramError::Type::Runtime, "a tensor is too large");
    }
  }
  return last + 1;
}

void alloc(const Alloc& alloc, Frame& frame, Gil& gil) {
  if (alloc.device.is_cuda()) {
    alloc_cuda(alloc, frame, gil);
    return;
  }
  Sizes size_room, stride_room;
  const c10::IntArrayRef sizes = resolve(alloc.sizes, frame, size_room);
  const c10::IntArrayRef strides = resolve(alloc.strides, frame, stride_room);
  if (!alloc.device.is_cpu()) {
    frame.set(alloc.out,
              at::empty_strided(sizes, strides, at::TensorOptions().dtype(alloc.dtype).device(alloc.device)));
    return;
  }
  c10::Allocator* allocator = c10::GetCPUAllocator();
  const auto size = static_cast<size_t>(bytes_of(alloc, sizes, strides));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), size,
      size >= BlockCache::kSmallest ? BlockCache::instance().allocate(size) : allocator->allocate(size), allocator,
      /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                               c10::DispatchKeySet(c10::DispatchKey::CPU), alloc.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  frame.set(alloc.out, std::move(tensor));
}

void view(const View& view, Frame& frame) {
  Sizes size_room, stride_room;
  const at::Tensor& source = frame.tensor(view.source);
  const c10::IntArrayRef sizes = resolve(view.sizes, frame, size_room);
  const c10::IntArrayRef strides = resolve(view.strides, frame, stride_room);
  const int64_t offset = frame.operand(view.offset).as_int();
  const caffe2::TypeMeta dtype = view.dtype ? *view.dtype : source.dtype();
  const int64_t elements = reach(sizes, strides);
  const auto available = static_cast<int64_t>(source.storage().nbytes() / dtype.itemsize());
  // An empty view may begin anywhere, as in eager: there is nothing to read.
  if (offset < 0 || (elements > 0 && (offset > available || elements > available - offset))) {
    throw ProgramError(ProgramError::Type::Runtime, "a view reaches outside of its storage");
  }
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(source.storage()),
                                                             source.key_set(), dtype);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  frame.set(view.out, std::move(made));
}

int64_t run_kernel(const Launch& launch, void* const* buffers, const int64_t* scalars, int64_t extent) {
  const Kernel& kernel = *launch.kernel;
  // Slices that large are no more than the threads allowed.
  const int64_t grain = launch.threads == 0 ? launch.grain : std::max(launch.grain, at::divup(extent, launch.threads));
  if (extent <= grain || at::get_num_threads() == 1 || at::in_parallel_region()) {
    return kernel.entry(buffers, scalars, 0, extent);
  }
  std::atomic<int64_t> status{0};
  at::parallel_for(0, extent, grain, [&](int64_t begin, int64_t end) {
    const int64_t result = kernel.entry(buffers, scalars, begin, end);
    if (result != 0) status.store(result, std::memory_order_relaxed);
  });
  return status.load();
}

[[noreturn]] void fail_status(const Kernel& kernel, int64_t status) {
  const bool known = status >= 1 && static_cast<size_t>(status) <= kernel.checks.size();
  throw ProgramError(ProgramError::Type::Index,
                     known ? kernel.checks[static_cast<size_t>(status) - 1] : "index out of range");
}

// A kernel that Python runs: (tensors, scalars, grid, extent) -> status.
void launch_function(const Launch& launch, const Frame& frame, Gil& gil) {
  gil.acquire();
  Ref tensors = checked(PyList_New(0)), scalars = checked(PyList_New(0));
  for (const int32_t reg : launch.buffers) {
    checked(PyList_Append(tensors.get(), checked(THPVariable_Wrap(frame.tensor(reg))).get()));
  }
  for (const Operand& operand : launch.scalars) {
    checked(PyList_Append(scalars.get(), python_scalar(frame.operand(operand)).get()));
  }
  Ref grid = Ref::share(Py_None);
  if (!launch.grid.empty()) {
    grid = checked(Py_BuildValue("LLL", frame.operand(launch.grid[0]).as_int(), frame.operand(launch.grid[1]).as_int(),
                                 frame.operand(launch.grid[2]).as_int()));
  }
  Ref extent = checked(PyLong_FromLongLong(frame.operand(launch.extent).as_int()));
  Ref result = checked(PyObject_CallFunctionObjArgs(launch.kernel->function.get(), tensors.get(), scalars.get(),
                                                    grid.get(), extent.get(), nullptr));
  const int64_t status = PyLong_AsLongLong(result.get());
  if (status == -1 && PyErr_Occurred()) throw PythonError();
  if (status != 0) fail_status(*launch.kernel, status);
}

void launch(const Launch& launch, Frame& frame, Gil& gil) {
  const Kernel& kernel = *launch.kernel;
  if (kernel.cuda != nullptr) {
    launch_cuda(launch, frame, gil);
    return;
  }
  if (kernel.entry == nullptr) {
    launch_function(launch, frame, gil);
    return;
  }
  const int64_t extent = frame.operand(launch.extent).as_int();
  if (extent <= 0) return;
  c10::SmallVector<void*, 12> buffers(launch.buffers.size());
  c10::SmallVector<int64_t, 8> scalars(launch.scalars.size());
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i] = frame.tensor(launch.buffers[i]).data_ptr();
  for (size_t i = 0; i < scalars.size(); ++i) {
    scalars[i] = frame.operand(launch.scalars[i]).bits(kernel.scalar_kinds.empty() ? 0 : kernel.scalar_kinds[i]);
  }
  if (extent > launch.grain) gil.release();
  const int64_t status = run_kernel(launch, buffers.data(), scalars.data(), extent);
  if (status != 0) fail_status(kernel, status);
}

c10::Device device_of(const Argument& argument, const Frame& frame) {
  return c10::Device(c10::kCUDA, frame.devices[static_cast<size_t>(argument.reg)]);
}

IValue boxed(const Argument& argument, const Frame& frame) {
  switch (argument.kind) {
    case Argument::Kind::Constant: return argument.constant;
    case Argument::Kind::Scalar: return boxed_scalar(frame.scalar(argument.reg), argument.want);
    case Argument::Kind::Device: return IValue(device_of(argument, frame));
    case Argument::Kind::Tensor: {
      const at::Tensor& tensor = frame.tensor(argument.reg);
      return tensor.defined() || argument.want == Argument::Want::Tensor ? IValue(tensor) : IValue();
    }
    default: {
      std::vector<IValue> items;
      items.reserve(argument.items.size());
      for (const Argument& item : argument.items) items.push_back(boxed(item, frame));
      return boxed_list(items, argument.want);
    }
  }
}

// The flattened returns of a call into registers.
class Receiver {
 public:
  Receiver(const std::vector<Out>& outs, Frame& frame) : outs_(outs), frame_(frame) {}

  void take(IValue&& value) {
    if (value.isTensor()) {
      at::Tensor tensor = std::move(value).toTensor();
      const Out& out = next();
      if (out.kind == Out::Kind::Tensor) frame_.set(out.reg, std::move(tensor));
      else if (out.kind == Out::Kind::Scalar) wrong();
    } else if (value.isList()) {
      for (const IValue& item : value.toListRef()) take(IValue(item));
    } else if (value.isTuple()) {
      for (const IValue& item : value.toTupleRef().elements()) take(IValue(item));
    } else if (value.isNone()) {
      const Out& out = next();
      if (out.kind == Out::Kind::Tensor) frame_.free(out.reg);
      else if (out.kind == Out::Kind::Scalar) wrong();
    } else {
      take_scalar(value);
    }
  }

  void finish() const {
    // An operator without results has one that nobody takes.
    for (size_t i = position_; i < outs_.size(); ++i) {
      if (outs_[i].kind != Out::Kind::Drop) wrong();
    }
  }

 private:
  void take_scalar(const IValue& value) {
    const Out& out = next();
    if (out.kind == Out::Kind::Drop) return;
    if (out.kind == Out::Kind::Tensor) wrong();
    if (value.isInt()) frame_.set(out.reg, Value::of_int(value.toInt()));
    else if (value.isDouble()) frame_.set(out.reg, Value::of_float(value.toDouble()));
    else if (value.isBool()) frame_.set(out.reg, Value::of_bool(value.toBool()));
    else wrong();
  }
  const Out& next() {
    if (position_ >= outs_.size()) wrong();
    return outs_[position_++];
  }
  [[noreturn]] static void wrong() {
    throw ProgramError(ProgramError::Type::TypeMismatch, "a call returned other values than the program expects");
  }

  const std::vector<Out>& outs_;
  Frame& frame_;
  size_t position_ = 0;
};

void call(const Call& call, Frame& frame, Gil& gil) {
  torch::jit::Stack stack;
  stack.reserve(std::max<size_t>(call.args.size(), 4));
  for (const Argument& argument : call.args) stack.push_back(boxed(argument, frame));
  gil.release();
  if (call.grad_mode) {
    const c10::AutoGradMode grad_mode{true};
    call.op.callBoxed(stack);
  } else {
    call.op.callBoxed(stack);
  }
  if (call.outs.empty()) return;
  Receiver receiver(call.outs, frame);
  for (IValue& value : stack) receiver.take(std::move(value));
  receiver.finish();
}

using c10::DispatchKey;

// Results whose memory does not hold their values as they are, and those that have no strides.
constexpr c10::DispatchKeySet kLazy({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});
constexpr c10::DispatchKeySet kUnusual =
    kLazy | c10::DispatchKeySet(
                {DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::NestedTensor, DispatchKey::MkldnnCPU});

// Whether a result lies as predicted. This is all that a call of a library costs where it does.
bool lies(const Hold& hold, const c10::TensorImpl& impl, const Frame& frame) {
  if (impl.key_set().has_any(kUnusual) || impl.dtype() != hold.dtype || impl.device_type() != hold.device) return false;
  const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  const size_t count = hold.dims.size();
  if (sizes.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    const auto& [size, stride] = hold.dims[i];
    if (frame.integer(size) != sizes[i]) return false;
    // Strides of dimensions with fewer than two elements do not matter.
    if (frame.integer(stride) != strides[i] && sizes[i] > 1) return false;
  }
  return true;
}

std::string layout_text(caffe2::TypeMeta dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        c10::DeviceType device) {
  const auto list = [](c10::IntArrayRef values) {
    std::string text;
    for (const int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return "[" + text + "]";
  };
  return torch::getTHPDtype(dtype.toScalarType())->name + (" " + list(sizes)) + " strides " + list(strides) + " on " +
         c10::DeviceTypeName(device, /*lower_case=*/true);
}

// A result in another layout: copied where that is enough, else an error.
void hold(const Hold& hold, Frame& frame, Gil& gil) {
  const at::Tensor& tensor = frame.tensor(hold.reg);
  Sizes sizes, strides;
  for (const auto& [size, stride] : hold.dims) {
    sizes.push_back(frame.integer(size));
    strides.push_back(frame.integer(stride));
  }
  const bool strided = tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_nested();
  const auto device_fits = [&] {
    const c10::DeviceType device = tensor.device().type();
    return device == hold.device || (hold.device == c10::kCUDA && device == c10::kCPU && tensor.dim() == 0);
  };
  if (!strided || tensor.dtype() != hold.dtype || tensor.sizes() != sizes || !device_fits()) {
    const std::string found =
        strided ? layout_text(tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.device().type())
                : "no strided tensor";
    throw ProgramError(ProgramError::Type::Prediction, hold.op + " returned " + found + " where " +
                                                           layout_text(hold.dtype, sizes, strides, hold.device) +
                                                           " was predicted");
  }
  if ((tensor.numel() == 0 || tensor.dim() == 0) && !tensor.key_set().has_any(kLazy)) return;
  gil.release();
  at::Tensor copy = at::empty_strided(sizes, strides, tensor.options());
  copy.copy_(tensor);
  frame.set(hold.reg, std::move(copy));
}

Value value_of_scalar(const c10::Scalar& scalar) {
  if (scalar.isComplex())
    throw ProgramError(ProgramError::Type::TypeMismatch, "a complex number is not a scalar of a program");
  if (scalar.isFloatingPoint()) return Value::of_float(scalar.toDouble());
  return scalar.isBoolean() ? Value::of_bool(scalar.toBool()) : Value::of_int(scalar.toLong());
}

void compute_scalar(const Compute& compute_, Frame& frame) {
  Value args[3];
  for (size_t i = 0; i < compute_.args.size(); ++i) args[i] = frame.operand(compute_.args[i]);
  frame.set(compute_.out, compute(compute_.opcode, args));
}

void size_of(const SizeOf& size, Frame& frame) {
  const at::Tensor& source = frame.tensor(size.source);
  const int64_t value = size.kind == 'i'   ? source.size(size.dim)
                        : size.kind == 't' ? source.stride(size.dim)
                                           : source.storage_offset();
  frame.set(size.out, Value::of_int(value));
}

Ref python_argument(const Argument& argument, const Frame& frame) {
  switch (argument.kind) {
    case Argument::Kind::Constant: return argument.object;
    case Argument::Kind::Scalar: return python_scalar(frame.scalar(argument.reg));
    case Argument::Kind::Device: return checked(THPDevice_New(device_of(argument, frame)));
    case Argument::Kind::Tensor: {
      const at::Tensor& tensor = frame.tensor(argument.reg);
      return tensor.defined() ? checked(THPVariable_Wrap(tensor)) : Ref::share(Py_None);
    }
    default: {
      Ref list = checked(PyList_New(0));
      for (const Argument& item : argument.items)
        checked(PyList_Append(list.get(), python_argument(item, frame).get()));
      return list;
    }
  }
}

void receive(const Out& out, PyObject* value, Frame& frame) {
  if (out.kind == Out::Kind::Scalar) {
    frame.set(out.reg, value_of(value));
  } else if (out.kind == Out::Kind::Tensor) {
    if (value == Py_None) {
      frame.free(out.reg);
    } else if (THPVariable_Check(value)) {
      frame.set(out.reg, at::Tensor(THPVariable_Unpack(value)));
    } else {
      PyErr_Format(PyExc_TypeError, "expected a tensor, got %s", Py_TYPE(value)->tp_name);
      throw PythonError();
    }
  }
}

void python_call(const PythonCall& python, Frame& frame, Gil& gil) {
  gil.acquire();
  Ref args = checked(PyTuple_New(static_cast<Py_ssize_t>(python.args.size())));
  for (size_t i = 0; i < python.args.size(); ++i) {
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), python_argument(python.args[i], frame).release());
  }
  Ref result = checked(PyObject_Call(python.function.get(), args.get(), nullptr));
  frame.devices.refresh();
  if (python.outs.empty()) return;
  const bool many = PyTuple_Check(result.get()) || PyList_Check(result.get());
  Ref values = many ? checked(PySequence_Tuple(result.get())) : checked(PyTuple_Pack(1, result.get()));
  if (static_cast<size_t>(PyTuple_GET_SIZE(values.get())) != python.outs.size()) {
    PyErr_Format(PyExc_RuntimeError, "%zd values were returned, %zu are expected", PyTuple_GET_SIZE(values.get()),
                 python.outs.size());
    throw PythonError();
  }
  for (size_t i = 0; i < python.outs.size(); ++i) {
    receive(python.outs[i], PyTuple_GET_ITEM(values.get(), static_cast<Py_ssize_t>(i)), frame);
  }
}

}  // namespace

c10::IntArrayRef resolve(const Dims& dims, const Frame& frame, Sizes& room) {
  if (dims.dynamic.empty()) return dims.fixed;
  room.assign(dims.fixed.begin(), dims.fixed.end());
  for (const auto& [position, operand] : dims.dynamic) room[position] = frame.operand(operand).as_int();
  return room;
}

int64_t bytes_of(const Alloc& alloc, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t bytes = alloc.bytes;
  if (bytes < 0 &&
      __builtin_mul_overflow(reach(sizes, strides), static_cast<int64_t>(alloc.dtype.itemsize()), &bytes)) {
    throw ProgramError(ProgramError::Type::Runtime, "a tensor is too large");
  }
  return bytes;
}

namespace {

inline void step(const Program& program, const Instruction& instruction, Frame& frame, Gil& gil, Position& position) {
  const uint32_t index = instruction.index;
  switch (instruction.op) {
    case Op::Alloc: alloc(program.allocs[index], frame, gil); break;
    case Op::View: view(program.views[index], frame); break;
    case Op::Launch: launch(program.launches[index], frame, gil); break;
    case Op::Call: call(program.calls[index], frame, gil); break;
    case Op::Hold: {
      const Hold& held = program.holds[index];
      const at::Tensor& result = frame.tensor(held.reg);
      if (!result.defined() || !lies(held, *result.unsafeGetTensorImpl(), frame)) hold(held, frame, gil);
      break;
    }
    case Op::Compute: compute_scalar(program.computes[index], frame); break;
    case Op::Size: size_of(program.sizes[index], frame); break;
    case Op::Item: {
      const Pair& item = program.items[index];
      gil.release();
      frame.set(item.first, value_of_scalar(frame.tensor(item.second).item()));
      break;
    }
    case Op::Check: {
      const Check& check = program.checks[index];
      if (!frame.operand(check.cond).truth()) throw ProgramError(ProgramError::Type::Runtime, check.message);
      break;
    }
    case Op::Free:
      for (const int32_t reg : program.frees[index].regs) frame.free(reg);
      break;
    case Op::Copy: {
      const Pair& copy = program.copies[index];
      gil.release();
      frame.tensor(copy.first).copy_(frame.tensor(copy.second));
      break;
    }
    case Op::Subprogram: run_subprogram(program.subprograms[index], frame, gil, position); break;
    case Op::Python: python_call(program.pythons[index], frame, gil); break;
  }
}

// Two loops, so that a call that nobody profiles pays for no range.
template <bool kProfiled>
void run_steps(const Program& program, Frame& frame, Gil& gil, Position& position) {
  const size_t count = program.code.size();
  for (size_t i = 0; i < count; ++i) {
    position.instruction = static_cast<int64_t>(i);
    if constexpr (kProfiled) {
      if (const Range& range = program.ranges->instructions[i]; !range.name.empty()) {
        const OpenRange open(range);
        step(program, program.code[i], frame, gil, position);
        continue;
      }
    }
    step(program, program.code[i], frame, gil, position);
  }
}

}  // namespace

void run_program(const Program& program, Frame& frame, Gil& gil, Position& position) {
  position.program = program.number;
  if (frame.is_profiled) run_steps<true>(program, frame, gil, position);
  else run_steps<false>(program, frame, gil, position);
  position.instruction = -1;
}

}  // namespace flambeau
