#include "arguments.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

namespace flambeau {
namespace {

using Want = Argument::Want;
using c10::IValue;
using c10::TypeKind;

struct Wanted {
  Want want = Want::Any;
  bool list = false;
  std::optional<int32_t> repeat;  // int[2] takes one int for both
  bool optional_items = false;    // Scalar?[] is another type of list than Scalar[], also where it is empty
};

Want want_of(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType: return Want::Tensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return Want::Int;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: return Want::Float;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType: return Want::Bool;
    case TypeKind::NumberType: return Want::Number;
    case TypeKind::StringType: return Want::String;
    case TypeKind::DeviceObjType: return Want::Device;
    default: return Want::Any;
  }
}

Wanted wanted_by(const c10::Argument& argument) {
  Wanted result;
  c10::TypePtr type = argument.type();
  const bool optional = type->kind() == TypeKind::OptionalType;
  if (optional) type = type->expectRef<c10::OptionalType>().getElementType();
  if (type->kind() == TypeKind::ListType) {
    result.list = true;
    result.repeat = argument.N();
    type = type->expectRef<c10::ListType>().getElementType();
    if (type->kind() == TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
      result.want = want_of(*type) == Want::Tensor ? Want::OptionalTensor : want_of(*type);
      result.optional_items = result.want == Want::Number;
      return result;
    }
  }
  result.want = want_of(*type);
  if (optional && !result.list && result.want == Want::Tensor) result.want = Want::OptionalTensor;
  return result;
}

IValue optional_numbers(const std::vector<IValue>& items) {
  c10::impl::GenericList list(c10::OptionalType::create(c10::NumberType::get()));
  for (const IValue& item : items) list.push_back(item);
  return IValue(list);
}

[[noreturn]] void cannot(PyObject* object, const char* what) {
  PyErr_Format(PyExc_TypeError, "%R cannot be %s", object, what);
  throw PythonError();
}

// What eager makes of a number where an operator takes a tensor.
IValue wrapped_number(const c10::Scalar& number) {
  at::Tensor wrapped = at::scalar_to_tensor(number);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return IValue(std::move(wrapped));
}

// A plain Python value as the schema wants it.
IValue constant_of(PyObject* object, Want want) {
  // Where the schema wants a tensor, eager's own calls hand on an undefined one.
  if (object == Py_None) return want == Want::Tensor ? IValue(at::Tensor()) : IValue();
  if (PyLong_Check(object) || PyFloat_Check(object)) return boxed_scalar(value_of(object), want);
  if (PyComplex_Check(object)) {
    const c10::complex<double> number(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
    return want == Want::Tensor || want == Want::OptionalTensor ? wrapped_number(number) : IValue(number);
  }
  if (PyUnicode_Check(object)) {
    const char* text = PyUnicode_AsUTF8(object);
    if (text == nullptr) throw PythonError();
    return want == Want::Device ? IValue(c10::Device(std::string(text))) : IValue(std::string(text));
  }
  if (THPDtype_Check(object)) {
    return IValue(static_cast<int64_t>(reinterpret_cast<THPDtype*>(object)->scalar_type));
  }
  if (THPDevice_Check(object)) return IValue(reinterpret_cast<THPDevice*>(object)->device);
  if (THPLayout_Check(object)) return IValue(static_cast<int64_t>(reinterpret_cast<THPLayout*>(object)->layout));
  if (THPMemoryFormat_Check(object)) {
    return IValue(static_cast<int64_t>(reinterpret_cast<THPMemoryFormat*>(object)->memory_format));
  }
  cannot(object, "an argument of an operator");
}

// A CUDA device is named by its slot: the inputs of a call decide which one it is.
bool is_slot(PyObject* object) {
  return THPDevice_Check(object) && reinterpret_cast<THPDevice*>(object)->device.is_cuda();
}

Argument slot_of(PyObject* device) {
  Argument result;
  result.kind = Argument::Kind::Device;
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): the index of a device is a number, -1 the current one
  result.reg = reinterpret_cast<THPDevice*>(device)->device.index();
  return result;
}

Argument plan(PyObject* encoded, const Wanted& wanted) {
  Argument result;
  result.want = wanted.want;
  const char tag = tag_of(encoded);
  if (tag == 't') {
    result.kind = Argument::Kind::Tensor;
    result.reg = register_of(encoded);
    return result;
  }
  if (tag == 'l' || (wanted.list && encoded != Py_None)) {
    std::vector<PyObject*> items;
    if (tag == 'l') {
      PyObject* tuple = PyTuple_GET_ITEM(encoded, 1);
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) items.push_back(PyTuple_GET_ITEM(tuple, i));
    } else if (wanted.repeat) {
      items.assign(static_cast<size_t>(*wanted.repeat), encoded);
    } else {
      cannot(encoded, "a list argument");
    }
    Wanted element{wanted.want, false, std::nullopt, false};
    bool constant = true;
    for (PyObject* item : items) {
      result.items.push_back(plan(item, element));
      constant = constant && result.items.back().kind == Argument::Kind::Constant;
    }
    result.kind = Argument::Kind::List;
    if (constant) {
      std::vector<IValue> values;
      values.reserve(result.items.size());
      for (Argument& item : result.items) values.push_back(std::move(item.constant));
      result.constant = wanted.optional_items ? optional_numbers(values) : boxed_list(values, wanted.want);
      result.kind = Argument::Kind::Constant;
      result.items.clear();
    }
    return result;
  }
  if (tag == 's') {
    result.kind = Argument::Kind::Scalar;
    result.reg = register_of(encoded);
    return result;
  }
  if (is_slot(encoded)) return slot_of(encoded);
  result.constant = constant_of(encoded, wanted.list ? Want::Any : wanted.want);
  return result;
}

template <typename T, typename Convert>
IValue list_of(const std::vector<IValue>& items, Convert&& convert) {
  c10::List<T> list;
  list.reserve(items.size());
  for (const IValue& item : items) list.push_back(convert(item));
  return IValue(list);
}

}  // namespace

char tag_of(PyObject* encoded) {
  if (!PyTuple_Check(encoded) || PyTuple_GET_SIZE(encoded) != 2) return 0;
  PyObject* tag = PyTuple_GET_ITEM(encoded, 0);
  return PyUnicode_Check(tag) && PyUnicode_GET_LENGTH(tag) == 1 ? static_cast<char>(PyUnicode_READ_CHAR(tag, 0)) : 0;
}

int32_t register_of(PyObject* encoded) {
  const long index = PyLong_AsLong(PyTuple_GET_ITEM(encoded, 1));
  if (index == -1 && PyErr_Occurred()) throw PythonError();
  return static_cast<int32_t>(index);
}

Value value_of(PyObject* number) {
  if (PyBool_Check(number)) return Value::of_bool(number == Py_True);
  if (PyLong_Check(number)) {
    const int64_t value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return Value::of_int(value);
  }
  if (PyFloat_Check(number)) return Value::of_float(PyFloat_AS_DOUBLE(number));
  cannot(number, "a scalar");
}

IValue boxed_scalar(const Value& value, Want want) {
  switch (want) {
    case Want::Int: return IValue(value.as_int());
    case Want::Float: return IValue(value.as_double());
    case Want::Bool: return IValue(value.truth());
    case Want::Tensor:
    case Want::OptionalTensor: {
      const c10::Scalar number = value.is_float()           ? c10::Scalar(value.d)
                                 : value.kind == Kind::Bool ? c10::Scalar(value.i != 0)
                                                            : c10::Scalar(value.i);
      return wrapped_number(number);
    }
    default:
      if (value.is_float()) return IValue(value.d);
      if (value.kind == Kind::Bool) return IValue(value.i != 0);
      return IValue(value.i);
  }
}

IValue boxed_list(const std::vector<IValue>& items, Want want) {
  switch (want) {
    case Want::Tensor: return list_of<at::Tensor>(items, [](const IValue& item) { return item.toTensor(); });
    case Want::OptionalTensor:
      return list_of<std::optional<at::Tensor>>(items, [](const IValue& item) {
        return item.isNone() ? std::optional<at::Tensor>() : std::optional<at::Tensor>(item.toTensor());
      });
    case Want::Int: return list_of<int64_t>(items, [](const IValue& item) { return item.toInt(); });
    case Want::Float: return list_of<double>(items, [](const IValue& item) { return item.toDouble(); });
    case Want::Bool: return list_of<bool>(items, [](const IValue& item) { return item.toBool(); });
    case Want::String: return list_of<std::string>(items, [](const IValue& item) { return item.toStringRef(); });
    case Want::Number: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const IValue& item : items) list.push_back(item);
      return IValue(list);
    }
    default: throw std::invalid_argument("this operator takes a kind of list that calls do not support");
  }
}

Argument plan_any(PyObject* encoded) {
  Argument result;
  const char tag = tag_of(encoded);
  if (tag == 't' || tag == 's') {
    result.kind = tag == 't' ? Argument::Kind::Tensor : Argument::Kind::Scalar;
    result.reg = register_of(encoded);
  } else if (tag == 'l') {
    result.kind = Argument::Kind::List;
    PyObject* tuple = PyTuple_GET_ITEM(encoded, 1);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
      result.items.push_back(plan_any(PyTuple_GET_ITEM(tuple, i)));
  } else if (is_slot(encoded)) {
    return slot_of(encoded);
  } else {
    result.object = Ref::share(encoded);
    if (PyLong_Check(encoded) || PyFloat_Check(encoded)) result.literal = value_of(encoded);
  }
  return result;
}

Call plan_call(const char* name, const char* overload, PyObject* args, PyObject* kwargs, std::vector<Out> outs) {
  c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const auto& parameters = op.schema().arguments();
  std::vector<PyObject*> given(parameters.size(), nullptr);
  const auto positional = static_cast<size_t>(PyTuple_GET_SIZE(args));
  if (positional > given.size()) throw std::invalid_argument(std::string(name) + ": too many arguments");
  for (size_t i = 0; i < positional; ++i) given[i] = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwargs); ++k) {
    PyObject* pair = PyTuple_GET_ITEM(kwargs, k);
    const char* key = PyUnicode_AsUTF8(PyTuple_GET_ITEM(pair, 0));
    if (key == nullptr) throw PythonError();
    const auto index = op.schema().argumentIndexWithName(key);
    if (!index) throw std::invalid_argument(std::string(name) + ": no argument is named " + key);
    given[static_cast<size_t>(*index)] = PyTuple_GET_ITEM(pair, 1);
  }
  Call call{op, {}, std::move(outs), false};
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != nullptr) {
      call.args.push_back(plan(given[i], wanted_by(parameters[i])));
    } else if (const auto value = parameters[i].default_value()) {
      Argument argument;
      argument.constant = *value;
      call.args.push_back(std::move(argument));
    } else {
      throw std::invalid_argument(std::string(name) + ": argument " + parameters[i].name() + " is missing");
    }
  }
  return call;
}

}  // namespace flambeau
