// From the plain tuples that native.py makes of an artifact to the executor's own records.
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include <unordered_map>

#include "arguments.hpp"
#include "devices.hpp"
#include "program.hpp"

namespace flambeau {
namespace {

// The fields of one tuple, read in order.
class Fields {
 public:
  explicit Fields(PyObject* tuple) : tuple_(tuple) {
    if (!PyTuple_Check(tuple)) raise(PyExc_TypeError, "a program is made of tuples");
  }
  PyObject* next() {
    if (position_ >= PyTuple_GET_SIZE(tuple_)) raise(PyExc_ValueError, "a record of the program is too short");
    return PyTuple_GET_ITEM(tuple_, position_++);
  }
  int64_t integer() {
    const int64_t value = PyLong_AsLongLong(next());
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
  }
  int32_t reg() { return static_cast<int32_t>(integer()); }
  bool flag() { return checked(PyObject_IsTrue(next())) != 0; }
  std::string text() {
    const char* value = PyUnicode_AsUTF8(next());
    if (value == nullptr) throw PythonError();
    return value;
  }
  Fields tuple() { return Fields(next()); }
  bool done() const { return position_ >= PyTuple_GET_SIZE(tuple_); }
  PyObject* get() const { return tuple_; }

 private:
  PyObject* tuple_;
  Py_ssize_t position_ = 0;
};

Operand operand_of(PyObject* encoded) {
  Operand result;
  if (tag_of(encoded) == 's') {
    result.reg = register_of(encoded);
  } else {
    result.literal = value_of(encoded);
  }
  return result;
}

std::vector<Operand> operands(Fields fields) {
  std::vector<Operand> result;
  while (!fields.done()) result.push_back(operand_of(fields.next()));
  return result;
}

std::vector<int32_t> registers(Fields fields) {
  std::vector<int32_t> result;
  while (!fields.done()) result.push_back(fields.reg());
  return result;
}

Dims dims(Fields fields) {
  Dims result;
  while (!fields.done()) {
    const Operand operand = operand_of(fields.next());
    if (operand.reg >= 0) result.dynamic.emplace_back(static_cast<uint32_t>(result.fixed.size()), operand);
    result.fixed.push_back(operand.reg >= 0 ? 0 : operand.literal.as_int());
  }
  return result;
}

std::vector<Out> outs(Fields fields) {
  std::vector<Out> result;
  while (!fields.done()) {
    PyObject* encoded = fields.next();
    Out out;
    if (encoded != Py_None) {
      out.kind = tag_of(encoded) == 't' ? Out::Kind::Tensor : Out::Kind::Scalar;
      out.reg = register_of(encoded);
    }
    result.push_back(out);
  }
  return result;
}

std::vector<Argument> arguments(Fields fields) {
  std::vector<Argument> result;
  while (!fields.done()) result.push_back(plan_any(fields.next()));
  return result;
}

c10::ScalarType dtype_of(PyObject* object) {
  if (!THPDtype_Check(object)) raise(PyExc_TypeError, "expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

c10::Device device_of(PyObject* object) {
  if (!THPDevice_Check(object)) raise(PyExc_TypeError, "expected a torch.device");
  return reinterpret_cast<THPDevice*>(object)->device;
}

// Bytes that the strides reach, as torch computes them.
int64_t storage_bytes(const Dims& sizes, const Dims& strides, size_t itemsize) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.fixed.size(); ++i) {
    if (sizes.fixed[i] == 0) return 0;
    last += (sizes.fixed[i] - 1) * strides.fixed[i];
  }
  return (last + 1) * static_cast<int64_t>(itemsize);
}

std::vector<InputDim> input_dims(PyObject* encoded) {
  std::vector<InputDim> result;
  for (Fields fields(encoded); !fields.done();) {
    PyObject* item = fields.next();
    InputDim dim;
    if (item != Py_None) {
      const Operand operand = operand_of(item);
      dim.kind = operand.reg >= 0 ? InputDim::Kind::Register : InputDim::Kind::Fixed;
      dim.value = operand.reg >= 0 ? operand.reg : operand.literal.as_int();
    }
    result.push_back(dim);
  }
  return result;
}

Input input_of(Fields fields) {
  Input input;
  input.is_scalar = fields.flag();
  input.reg = fields.reg();
  PyObject* dtype = fields.next();
  PyObject* device = fields.next();
  PyObject* sizes = fields.next();
  PyObject* strides = fields.next();
  input.mutated = fields.flag();
  input.checks_dtype = dtype != Py_None;
  input.checks_device = device != Py_None;
  input.checks_sizes = sizes != Py_None;
  input.checks_strides = strides != Py_None;
  if (input.checks_dtype) input.dtype = dtype_of(dtype);
  if (input.checks_device) input.device = device_of(device);
  if (input.checks_sizes) input.sizes = input_dims(sizes);
  if (input.checks_strides) input.strides = input_dims(strides);
  return input;
}

Output output_of(Fields fields) {
  Output output{};
  const std::string kind = fields.text();
  PyObject* value = fields.next();
  if (kind == "scalar") {
    output.kind = Output::Kind::Scalar;
    output.operand = operand_of(value);
  } else if (kind == "none") {
    output.kind = Output::Kind::None;
  } else {
    output.kind = kind == "tensor" ? Output::Kind::Tensor : Output::Kind::Input;
    output.index = static_cast<int32_t>(PyLong_AsLong(value));
  }
  return output;
}

using Kernels = std::vector<std::unique_ptr<Kernel>>;
// Nested programs that are decoded already: one of several places is the same tuple in each.
using Decoded = std::unordered_map<PyObject*, std::shared_ptr<Program>>;
std::shared_ptr<Program> program_of(PyObject* encoded, const Kernels& kernels, Decoded& decoded);

template <typename T>
Instruction append(Op op, std::vector<T>& table, T record) {
  table.push_back(std::move(record));
  return Instruction{op, static_cast<uint32_t>(table.size() - 1)};
}

Instruction decode_alloc(Fields& f, Program& p) {
  const int32_t out = f.reg();
  Dims sizes = dims(f.tuple()), strides = dims(f.tuple());
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(dtype_of(f.next()));
  const c10::Device device = device_of(f.next());
  const bool fixed = sizes.dynamic.empty() && strides.dynamic.empty();
  const int64_t bytes = fixed ? storage_bytes(sizes, strides, dtype.itemsize()) : -1;
  p.calls_library = p.calls_library || !(device.is_cpu() || device.is_cuda());
  return append(Op::Alloc, p.allocs, Alloc{out, std::move(sizes), std::move(strides), dtype, device, bytes});
}

Instruction decode_view(Fields& f, Program& p) {
  View view{f.reg(), f.reg(), dims(f.tuple()), dims(f.tuple()), operand_of(f.next()), std::nullopt};
  PyObject* dtype = f.next();
  if (dtype != Py_None) view.dtype = c10::scalarTypeToTypeMeta(dtype_of(dtype));
  return append(Op::View, p.views, std::move(view));
}

Instruction decode_launch(Fields& f, Program& p, const Kernels& kernels) {
  const Kernel* kernel = kernels.at(static_cast<size_t>(f.integer())).get();
  Launch launch{kernel, registers(f.tuple()), operands(f.tuple()), operand_of(f.next()), f.integer(), p.threads, {}};
  PyObject* grid = f.next();
  if (grid != Py_None) launch.grid = operands(Fields(grid));
  p.calls_library = p.calls_library || kernel->function;
  return append(Op::Launch, p.launches, std::move(launch));
}

Instruction decode_hold(Fields& f, Program& p) {
  const int32_t reg = f.reg();
  const std::vector<Operand> sizes = operands(f.tuple()), strides = operands(f.tuple());
  std::vector<std::pair<Operand, Operand>> dims;
  dims.reserve(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) dims.emplace_back(sizes[i], strides.at(i));
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(dtype_of(f.next()));
  const c10::DeviceType device = device_of(f.next()).type();
  return append(Op::Hold, p.holds, Hold{reg, std::move(dims), dtype, device, f.text()});
}

Subprogram::Kind kind_of(const std::string& name) {
  if (name == "call") return Subprogram::Kind::Call;
  if (name == "cond") return Subprogram::Kind::Cond;
  if (name == "while") return Subprogram::Kind::While;
  if (name == "stack") return Subprogram::Kind::Stack;
  if (name == "scan") return Subprogram::Kind::Scan;
  raise(PyExc_ValueError, "unknown subprogram " + name);
}

Instruction decode_subprogram(Fields& f, Program& p, const Kernels& kernels, Decoded& decoded) {
  Subprogram sub;
  sub.kind = kind_of(f.text());
  for (Fields programs = f.tuple(); !programs.done();) {
    PyObject* encoded = programs.next();
    std::shared_ptr<Program>& program = decoded[encoded];
    if (program == nullptr) program = program_of(encoded, kernels, decoded);
    sub.programs.push_back(program);
  }
  sub.inputs = arguments(f.tuple());
  sub.outs = outs(f.tuple());
  sub.extra = arguments(f.tuple());
  sub.slices = registers(f.tuple());
  sub.length = operand_of(f.next());
  p.calls_library = true;
  return append(Op::Subprogram, p.subprograms, std::move(sub));
}

Instruction decode_instruction(Fields f, Program& p, const Kernels& kernels, Decoded& decoded) {
  const std::string kind = f.text();
  if (kind == "alloc") return decode_alloc(f, p);
  if (kind == "view") return decode_view(f, p);
  if (kind == "launch") return decode_launch(f, p, kernels);
  if (kind == "compute") {
    return append(Op::Compute, p.computes, Compute{f.reg(), opcode_of(f.text()), operands(f.tuple())});
  }
  if (kind == "size") return append(Op::Size, p.sizes, SizeOf{f.reg(), f.reg(), f.integer(), f.text().at(1)});
  if (kind == "check") return append(Op::Check, p.checks, Check{operand_of(f.next()), f.text()});
  if (kind == "free") return append(Op::Free, p.frees, Free{registers(f.tuple())});
  p.calls_library = true;
  if (kind == "hold") return decode_hold(f, p);
  if (kind == "item") return append(Op::Item, p.items, Pair{f.reg(), f.reg()});
  if (kind == "copy") return append(Op::Copy, p.copies, Pair{f.reg(), f.reg()});
  if (kind == "subprogram") return decode_subprogram(f, p, kernels, decoded);
  if (kind == "call") {
    const std::string name = f.text(), overload = f.text();
    PyObject* args = f.tuple().get();
    PyObject* kwargs = f.tuple().get();
    Call call = plan_call(name.c_str(), overload.c_str(), args, kwargs, outs(f.tuple()));
    call.grad_mode = f.integer() != 0;
    return append(Op::Call, p.calls, std::move(call));
  }
  if (kind == "python") {
    Ref function = Ref::share(f.next());
    std::vector<Argument> args = arguments(f.tuple());
    return append(Op::Python, p.pythons, PythonCall{std::move(function), std::move(args), outs(f.tuple())});
  }
  raise(PyExc_ValueError, "unknown instruction " + kind);
}

std::shared_ptr<Program> program_of(PyObject* encoded, const Kernels& kernels, Decoded& decoded) {
  auto program = std::make_shared<Program>();
  Fields fields(encoded);
  program->number = fields.reg();
  program->tensor_registers = static_cast<uint32_t>(fields.integer());
  program->scalar_registers = static_cast<uint32_t>(fields.integer());
  program->threads = fields.integer();
  for (Fields devices = fields.tuple(); !devices.done();) {
    PyObject* ordinal = devices.next();
    program->devices.push_back(ordinal == Py_None ? Devices::kUnknown
                                                  : static_cast<c10::DeviceIndex>(PyLong_AsLong(ordinal)));
  }
  for (Fields inputs = fields.tuple(); !inputs.done();) {
    program->inputs.push_back(input_of(inputs.tuple()));
    program->has_scalar_inputs = program->has_scalar_inputs || program->inputs.back().is_scalar;
    program->has_mutated_inputs = program->has_mutated_inputs || program->inputs.back().mutated;
  }
  for (Fields code = fields.tuple(); !code.done();) {
    program->code.push_back(decode_instruction(code.tuple(), *program, kernels, decoded));
  }
  for (Fields outputs = fields.tuple(); !outputs.done();) program->outputs.push_back(output_of(outputs.tuple()));
  return program;
}

}  // namespace

std::vector<std::unique_ptr<Kernel>> decode_kernels(PyObject* kernels) {
  std::vector<std::unique_ptr<Kernel>> result;
  for (Fields all(kernels); !all.done();) {
    Fields fields = all.tuple();
    auto kernel = std::make_unique<Kernel>();
    kernel->name = fields.text();
    PyObject* target = fields.next();
    if (PyLong_Check(target)) {
      kernel->entry = reinterpret_cast<KernelEntry>(PyLong_AsVoidPtr(target));
      if (kernel->entry == nullptr) raise(PyExc_ValueError, "kernel " + kernel->name + " has no address");
    } else if (PyTuple_Check(target)) {
      Fields cuda(target);
      PyObject *types = cuda.next(), *divisible = cuda.next();
      kernel->cuda = std::make_unique<CudaKernel>(types, divisible, cuda.next());
    } else {
      kernel->function = Ref::share(target);
    }
    kernel->scalar_kinds = fields.text();
    for (Fields checks = fields.tuple(); !checks.done();) kernel->checks.push_back(checks.text());
    result.push_back(std::move(kernel));
  }
  return result;
}

std::shared_ptr<Program> decode_program(PyObject* encoded, const Kernels& kernels) {
  Decoded decoded;
  return program_of(encoded, kernels, decoded);
}

}  // namespace flambeau
