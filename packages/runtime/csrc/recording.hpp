// A recording as the table keeps it: when it fits, what moves in, what comes out. Read from the Python record of the
// same name.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
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

// What changes when somebody takes an interest in a storage, or takes its memory away.
struct Counts {
  size_t tensors = 0;
  Py_ssize_t objects = 0;
  const void* address = nullptr;
  bool operator==(const Counts& other) const = default;
};

// The memory of results.
struct Own {
  c10::Storage storage;
  Ref object;  // Python's object for it: a user may hold that alone
  bool lent = true;
  Counts resting;

  Counts counts() const { return {storage.use_count(), Py_REFCNT(object.get()), storage.data()}; }
  bool held() const { return lent && !(counts() == resting); }
};

// Recordings that share scratch memory: their replays never overlap. The Python type `Lane`.
struct Lane {
  PyObject_HEAD void* stream;  // of the last replay of any of them
  bool running;  // one is being queued
};

struct Entry {
  Ref recording, replay, lane_object;
  Lane* lane = nullptr;
  std::vector<Number> numbers;
  std::vector<Fact> facts;
  std::vector<Fixed> fixed;
  std::vector<Copied> copied;
  std::vector<size_t> mutated;
  std::vector<Result> results;
  std::vector<Own> own;
  void* stream = nullptr;  // of its own last replay

  bool held() const {
    return std::any_of(own.begin(), own.end(), [](const Own& one) { return one.held(); });
  }
};

// The recording that a Python `Recording` describes, without its counts at rest. Throws PythonError.
std::shared_ptr<Entry> read_recording(PyObject* recording);

bool truth(PyObject* object);

// Add the type Lane to the module; false with a Python exception set.
bool add_lane(PyObject* module);

}  // namespace flambeau
