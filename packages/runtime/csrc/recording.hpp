// A recording as the table keeps it: when it fits, what moves in, what comes out. Read from the Python record of the same name.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "compat.hpp"

namespace flambeau {

// What a tensor input must be.
struct Fact {
  size_t position;
  c10::ScalarType dtype;
  c10::Device device;
  std::vector<int64_t> sizes, strides;
};

struct Number {
  size_t position;
  Ref value;
};

struct Fixed {
  size_t position;
  const void* address;
};

// An input that goes through a placeholder.
struct Copied {
  size_t position;
  at::Tensor placeholder;
  void* memory;
  size_t bytes;
  bool back, dense;
};

struct Layout {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;
};

struct Result {
  enum class Kind : uint8_t { Own, Alias, Input, Value } kind = Kind::Value;
  size_t index = 0;  // of the storage, or of the input
  int64_t shift = 0;
  Layout layout;
  Ref value;
};

struct Counts {
  size_t tensors;
  Py_ssize_t objects;
  bool operator==(const Counts& other) const { return tensors == other.tensors && objects == other.objects; }
};

struct Entry {
  Ref recording, replay;
  std::vector<Number> numbers;
  std::vector<Fact> facts;
  std::vector<Fixed> fixed;
  std::vector<Copied> copied;
  std::vector<size_t> mutated;
  std::vector<Result> results;
  std::vector<c10::Storage> storages;
  std::vector<Ref> wrappers;  // Python's objects for the storages: a user may hold one of those alone
  std::vector<Counts> resting;
  size_t lent_from = 0;  // storages of fewer bytes are copied out
  void* stream = nullptr;

  Counts counts(size_t i) const { return {storages[i].use_count(), Py_REFCNT(wrappers[i].get())}; }
  bool lends(size_t i) const { return storages[i].nbytes() >= lent_from; }
  bool taken() const {
    for (size_t i = 0; i < storages.size(); ++i) {
      if (lends(i) && !(counts(i) == resting[i])) return true;
    }
    return false;
  }
};

// The recording that a Python `Recording` describes, without its counts at rest. Throws PythonError.
std::shared_ptr<Entry> read_recording(PyObject* recording);

bool truth(PyObject* object);

}  // namespace flambeau
