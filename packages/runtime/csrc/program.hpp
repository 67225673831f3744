// A decoded program: what the executor runs. Made once by decode.cpp, never changed afterwards.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "compat.hpp"
#include "cuda_kernel.hpp"
#include "scalar.hpp"

namespace flambeau {

using KernelEntry = int64_t (*)(void* const* buffers, const int64_t* scalars, int64_t begin, int64_t end);

struct Kernel {
  std::string name;
  // One of these three runs it.
  KernelEntry entry = nullptr;
  std::unique_ptr<CudaKernel> cuda;
  Ref function;  // (tensors, scalars, grid, extent) -> status
  std::string scalar_kinds;
  std::vector<std::string> checks;
};

// Sizes or strides; `dynamic` are the positions to be filled from scalar registers.
struct Dims {
  std::vector<int64_t> fixed;
  std::vector<std::pair<uint32_t, Operand>> dynamic;
};

struct Out {
  enum class Kind : uint8_t { Drop, Tensor, Scalar } kind = Kind::Drop;
  int32_t reg = -1;
};

// An argument of a call: constant, register, or a list of arguments.
struct Argument {
  enum class Kind : uint8_t { Constant, Tensor, Scalar, List, Device } kind = Kind::Constant;
  // What the operator's schema wants here; `Any` for Python functions and subprograms.
  enum class Want : uint8_t { Any, Tensor, OptionalTensor, Int, Float, Bool, Number, String, Device } want = Want::Any;
  c10::IValue constant;
  Ref object;  // the constant of a Python call
  int32_t reg = -1;  // for a device: its slot
  Value literal;     // a constant scalar of a subprogram
  std::vector<Argument> items;
};

struct Alloc {
  int32_t out;
  Dims sizes, strides;
  caffe2::TypeMeta dtype;
  c10::Device device;  // its index is a slot where it is a CUDA device
  int64_t bytes;  // -1 where sizes are dynamic
};

struct View {
  int32_t out, source;
  Dims sizes, strides;
  Operand offset;
  std::optional<caffe2::TypeMeta> dtype;
};

struct Launch {
  const Kernel* kernel;
  std::vector<int32_t> buffers;
  std::vector<Operand> scalars;
  Operand extent;
  int64_t grain;
  int64_t threads;  // at most so many; 0 for as many as torch uses
  std::vector<Operand> grid;
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> args;
  std::vector<Out> outs;
  bool grad_mode = false;
};

struct Hold {
  int32_t reg;
  std::vector<std::pair<Operand, Operand>> dims;  // size and stride
  caffe2::TypeMeta dtype;
  c10::DeviceType device;
  std::string op;
};

struct Compute {
  int32_t out;
  Opcode opcode;
  std::vector<Operand> args;
};

struct SizeOf {
  int32_t out, source;
  int64_t dim;
  char kind;  // 's'ize, s't'ride, 'o'ffset
};

struct Pair {  // item: out, source; copy: dst, src
  int32_t first, second;
};

struct Check {
  Operand cond;
  std::string message;
};

struct Free { std::vector<int32_t> regs; };

struct Program;

struct Subprogram {
  enum class Kind : uint8_t { Call, Cond, While, Stack, Scan } kind = Kind::Call;
  std::vector<std::shared_ptr<Program>> programs;  // shared with other places that run them
  std::vector<Argument> inputs, extra;
  std::vector<Out> outs;
  std::vector<int32_t> slices;
  Operand length;
};

struct PythonCall {
  Ref function;
  std::vector<Argument> args;
  std::vector<Out> outs;
};

enum class Op : uint8_t { Alloc, View, Launch, Call, Hold, Compute, Size, Item, Check, Free, Copy, Subprogram, Python };

struct Instruction {
  Op op;
  uint32_t index;  // into the table of its kind
};

struct InputDim {
  enum class Kind : uint8_t { Any, Fixed, Register } kind = Kind::Any;
  int64_t value = 0;
};

struct Input {
  bool is_scalar = false;
  int32_t reg = -1;
  bool checks_dtype = false, checks_device = false, checks_sizes = false, checks_strides = false, mutated = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device{c10::kCPU};  // its index is a slot where it is a CUDA device
  std::vector<InputDim> sizes, strides;
};

struct Output {
  enum class Kind : uint8_t { Tensor, Scalar, Input, None } kind;
  int32_t index = -1;
  Operand operand;
};

struct Ranges;

struct Program {
  int32_t number = 0;  // names the program in error contexts
  uint32_t tensor_registers = 0, scalar_registers = 0;
  int64_t threads = 0;  // that a kernel on the CPU uses at most; 0 for as many as torch uses
  bool calls_library = false;
  bool has_scalar_inputs = false, has_mutated_inputs = false;
  // one a slot of a CUDA device: its ordinal, or Devices::kUnknown for the inputs'
  std::vector<c10::DeviceIndex> devices;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Instruction> code;
  std::vector<Alloc> allocs;
  std::vector<View> views;
  std::vector<Launch> launches;
  std::vector<Call> calls;
  std::vector<Hold> holds;
  std::vector<Compute> computes;
  std::vector<SizeOf> sizes;
  std::vector<Pair> items, copies;
  std::vector<Check> checks;
  std::vector<Free> frees;
  std::vector<Subprogram> subprograms;
  std::vector<PythonCall> pythons;
  mutable std::shared_ptr<const Ranges> ranges;  // made at the first call under a profiler (ranges.hpp)
};

// Decode what native.py made of an artifact. Throws PythonError or std::exception.
std::vector<std::unique_ptr<Kernel>> decode_kernels(PyObject* kernels);
std::shared_ptr<Program> decode_program(PyObject* encoded, const std::vector<std::unique_ptr<Kernel>>& kernels);

}  // namespace flambeau
