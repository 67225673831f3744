// A Triton kernel of a program: how its arguments are packed, and its versions on the devices where it has run.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "compat.hpp"
#include "cuda.hpp"
#include "scalar.hpp"

namespace flambeau {

class Gil;

class CudaKernel {
 public:
  enum class Type : uint8_t { Pointer, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64 };

  struct Parameter {
    Type type;
    bool divisible;  // promised to be a multiple of 16
  };

  // `types` and `divisible` have one entry a parameter, pointers first. `provide(divisible, ordinal)` gives the
  // compiled kernel for a device as (key, binary, name, threads, shared, global_scratch, profile_scratch, waits).
  CudaKernel(PyObject* types, PyObject* divisible, PyObject* provide);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  PyObject* provide() const { return provide_.get(); }
  void forget() { provide_ = Ref::share(Py_None); }

  // The version for the device `ordinal`, with or without what `divisible` promises; asks Python the first time only.
  const cuda::Function& function(bool divisible, int ordinal, Gil& gil) const;

  // The bits that the kernel reads for a number. Throws ProgramError where the type cannot hold it.
  static uint64_t pack(const Value& value, Type type);

 private:
  static constexpr int kMostDevices = 128;

  const cuda::Function& bind(bool divisible, int ordinal, Gil& gil) const;

  std::vector<Parameter> parameters_;
  Ref provide_;
  mutable std::array<std::array<std::atomic<const cuda::Function*>, kMostDevices>, 2> bound_{};
};

}  // namespace flambeau
