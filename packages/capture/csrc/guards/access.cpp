// One step from a value to another: what each accessor of a guard tree does.
#include "guards/access.hpp"

namespace flambeau {
namespace {

PyObject* raw_subscript(PyObject* base, PyObject* key, Evaluation& evaluation) {
  evaluation.careful |= !PyDict_CheckExact(base);
  PyObject* found = PyObject_GetItem(base, key);
  return evaluation.own(found);
}

bool has_subscript_of(PyObject* object, const PyTypeObject& builtin) {
  const PyMappingMethods* own = Py_TYPE(object)->tp_as_mapping;
  return own != nullptr && own->mp_subscript == builtin.tp_as_mapping->mp_subscript;
}

PyObject* sequence_item(const Node& node, PyObject* base, Evaluation& evaluation) {
  const bool is_list = PyList_Check(base) && has_subscript_of(base, PyList_Type);
  const bool is_tuple = !is_list && PyTuple_Check(base) && has_subscript_of(base, PyTuple_Type);
  if (!is_list && !is_tuple) return raw_subscript(base, node.key, evaluation);
  const Py_ssize_t size = Py_SIZE(base);
  const Py_ssize_t index = node.number < 0 ? node.number + size : node.number;
  if (index < 0 || index >= size) return nullptr;
  return is_list ? PyList_GET_ITEM(base, index) : PyTuple_GET_ITEM(base, index);
}

PyObject* dict_item(const Node& node, PyObject* base, Evaluation& evaluation) {
  if (PyDict_CheckExact(base) || (PyDict_Check(base) && has_subscript_of(base, PyDict_Type))) {
    return _PyDict_GetItem_KnownHash(base, node.key, node.hash);
  }
  return raw_subscript(base, node.key, evaluation);
}

PyObject* stored_item(const Node& node, PyObject* base) {
  if (PyDict_Check(base)) return PyDict_GetItemWithError(base, node.key);
  if (!PyLong_CheckExact(node.key) || (!PyList_Check(base) && !PyTuple_Check(base))) return nullptr;
  const Py_ssize_t index = PyLong_AsSsize_t(node.key);
  if (index < 0 || index >= Py_SIZE(base)) return nullptr;
  return PyList_Check(base) ? PyList_GET_ITEM(base, index) : PyTuple_GET_ITEM(base, index);
}

PyObject* dict_key_at(const Node& node, PyObject* base, Evaluation& evaluation) {
  if (!PyDict_Check(base)) return nullptr;
  if (PyDict_CheckExact(base)) {
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    for (int i = 0; i <= node.number; ++i) {
      if (!PyDict_Next(base, &position, &key, nullptr)) return nullptr;
    }
    return key;
  }
  // An OrderedDict keeps an order of its own; iteration knows it.
  Ref iterator = Ref::steal(PyObject_GetIter(base));
  if (!iterator) return nullptr;
  for (int i = 0;; ++i) {
    PyObject* key = PyIter_Next(iterator.get());
    if (key == nullptr) return nullptr;
    evaluation.own(key);
    if (i == node.number) return key;
  }
}

PyObject* attribute(const Node& node, PyObject* base, Evaluation& evaluation) {
  if (PyModule_CheckExact(base)) {
    // Names with double underscores may be descriptors of the module type; others come from its dict first.
    PyObject* found = _PyDict_GetItem_KnownHash(PyModule_GetDict(base), node.key, node.hash);
    if (found != nullptr && node.number == 0) return found;
    if (PyErr_Occurred()) return nullptr;
  }
  PyObject* found = nullptr;
  compat::lookup_attribute(base, node.key, &found);
  return evaluation.own(found);
}

PyObject* tensor_integer(const Node& node, PyObject* base, Evaluation& evaluation) {
  int64_t number = 0;
  if (!tensor_extent(base, node.access, node.number, &number)) return nullptr;
  return evaluation.own(PyLong_FromLongLong(number));
}

PyObject* root(const Node& node, Evaluation& evaluation) {
  const FrameView& frame = evaluation.frame;
  switch (node.access) {
    case Access::kNothing: return Py_None;
    case Access::kPinned: return node.key;
    case Access::kGlobal: return _PyDict_GetItem_KnownHash(frame.globals, node.key, node.hash);
    case Access::kBuiltin:
      return frame.builtins ? _PyDict_GetItem_KnownHash(frame.builtins, node.key, node.hash) : nullptr;
    default: break;
  }
  if (frame.locals != nullptr) return raw_subscript(frame.locals, node.key, evaluation);
  if (node.access == Access::kLocal) return node.number < frame.count ? frame.arguments[node.number] : nullptr;
  if (node.access == Access::kFreeVariable && frame.closure != nullptr &&
      node.number < PyTuple_GET_SIZE(frame.closure)) {
    return PyCell_GET(PyTuple_GET_ITEM(frame.closure, node.number));
  }
  return nullptr;
}

}  // namespace

PyObject* reach(const Node& node, PyObject* base, Evaluation& evaluation) {
  switch (node.access) {
    case Access::kAttribute: return attribute(node, base, evaluation);
    case Access::kInstanceDict: {
      PyObject** place = _PyObject_GetDictPtr(base);
      return place != nullptr ? *place : nullptr;
    }
    case Access::kSequenceItem: return sequence_item(node, base, evaluation);
    case Access::kDictItem: return dict_item(node, base, evaluation);
    case Access::kItem: return raw_subscript(base, node.key, evaluation);
    case Access::kDictKeyAt: return dict_key_at(node, base, evaluation);
    case Access::kTypeOf: return reinterpret_cast<PyObject*>(Py_TYPE(base));
    case Access::kCellContents: return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
    case Access::kTensorSize:
    case Access::kTensorStride:
    case Access::kTensorOffset: return tensor_integer(node, base, evaluation);
    case Access::kCallResult: return evaluation.own(PyObject_CallNoArgs(base));
    case Access::kStoredItem: return stored_item(node, base);
    case Access::kComputed: return evaluation.own(PyObject_CallOneArg(node.key, base));
    default: return root(node, evaluation);
  }
}

}  // namespace flambeau
