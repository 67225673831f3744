#include "cuda_kernel.hpp"

#include <cstring>
#include <limits>
#include <unordered_map>

#include "run.hpp"

namespace flambeau {
namespace {

using Type = CudaKernel::Type;

Type type_of(const std::string& text) {
  static const std::unordered_map<std::string, Type> table = {
      {"i1", Type::I8},    {"i8", Type::I8},   {"i16", Type::I16},  {"i32", Type::I32}, {"i64", Type::I64},
      {"u1", Type::U8},    {"u8", Type::U8},   {"u16", Type::U16},  {"u32", Type::U32}, {"u64", Type::U64},
      {"fp32", Type::F32}, {"f32", Type::F32}, {"fp64", Type::F64}, {"f64", Type::F64},
  };
  if (!text.empty() && text[0] == '*') return Type::Pointer;
  const auto found = table.find(text);
  if (found == table.end()) raise(PyExc_ValueError, "a kernel parameter of type " + text + " cannot be passed");
  return found->second;
}

template <typename T>
uint64_t narrow(const Value& value) {
  const int64_t number = value.as_int();
  bool fits = true;
  if constexpr (sizeof(T) < sizeof(int64_t)) {
    fits = number >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
           number <= static_cast<int64_t>(std::numeric_limits<T>::max());
  } else if constexpr (std::numeric_limits<T>::min() == 0) {
    fits = number >= 0;
  }
  if (!fits) throw ProgramError(ProgramError::Type::Overflow, "a kernel argument does not fit into its type");
  return static_cast<uint64_t>(number);
}

int64_t integer_of(PyObject* object) {
  const int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

cuda::Image image_of(PyObject* tuple) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 8)
    raise(PyExc_TypeError, "a compiled kernel is a tuple of 8");
  cuda::Image image;
  image.key = text_of(PyTuple_GET_ITEM(tuple, 0));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(tuple, 1), &data, &size) < 0) throw PythonError();
  image.binary.assign(data, static_cast<size_t>(size));
  image.name = text_of(PyTuple_GET_ITEM(tuple, 2));
  image.threads = static_cast<uint32_t>(integer_of(PyTuple_GET_ITEM(tuple, 3)));
  image.shared = static_cast<uint32_t>(integer_of(PyTuple_GET_ITEM(tuple, 4)));
  image.global_scratch = integer_of(PyTuple_GET_ITEM(tuple, 5));
  image.profile_scratch = integer_of(PyTuple_GET_ITEM(tuple, 6));
  image.waits = PyTuple_GET_ITEM(tuple, 7) == Py_True;
  return image;
}

cuda::Image ask(PyObject* provide, bool divisible, int ordinal) {
  Ref number = checked(PyLong_FromLong(ordinal));
  Ref compiled = checked(PyObject_CallFunctionObjArgs(provide, divisible ? Py_True : Py_False, number.get(), nullptr));
  return image_of(compiled.get());
}

}  // namespace

CudaKernel::CudaKernel(PyObject* types, PyObject* divisible, PyObject* provide) : provide_(Ref::share(provide)) {
  if (!PyTuple_Check(types) || !PyTuple_Check(divisible) || PyTuple_GET_SIZE(types) != PyTuple_GET_SIZE(divisible)) {
    raise(PyExc_TypeError, "a kernel's types and promises are tuples of one length");
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
    parameters_.push_back({type_of(text_of(PyTuple_GET_ITEM(types, i))), PyTuple_GET_ITEM(divisible, i) == Py_True});
  }
}

const cuda::Function& CudaKernel::function(bool divisible, int ordinal, Gil& gil) const {
  if (ordinal < 0 || ordinal >= kMostDevices) {
    throw ProgramError(ProgramError::Type::Runtime, "there is no CUDA device " + std::to_string(ordinal));
  }
  const cuda::Function* found = bound_[divisible ? 1 : 0][static_cast<size_t>(ordinal)].load(std::memory_order_acquire);
  return found != nullptr ? *found : bind(divisible, ordinal, gil);
}

const cuda::Function& CudaKernel::bind(bool divisible, int ordinal, Gil& gil) const {
  // Two threads may both ask Python; what they get is equal, and loaded once.
  gil.acquire();
  const cuda::Image image = ask(provide_.get(), divisible, ordinal);
  gil.release();
  const cuda::Function& made = cuda::load(image, ordinal);
  bound_[divisible ? 1 : 0][static_cast<size_t>(ordinal)].store(&made, std::memory_order_release);
  return made;
}

uint64_t CudaKernel::pack(const Value& value, Type type) {
  switch (type) {
    case Type::I8: return narrow<int8_t>(value);
    case Type::I16: return narrow<int16_t>(value);
    case Type::I32: return narrow<int32_t>(value);
    case Type::U8: return narrow<uint8_t>(value);
    case Type::U16: return narrow<uint16_t>(value);
    case Type::U32: return narrow<uint32_t>(value);
    case Type::U64: return narrow<uint64_t>(value);
    case Type::F32: {
      const auto number = static_cast<float>(value.as_double());
      uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      return bits;
    }
    case Type::F64: return static_cast<uint64_t>(value.bits('f'));
    default: return static_cast<uint64_t>(value.as_int());
  }
}

}  // namespace flambeau
