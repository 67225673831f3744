// Leaves about plain Python values, and relations between values.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "compat.hpp"
#include "flambeau/errors.hpp"
#include "guards/node.hpp"

namespace flambeau {
namespace {

bool same_bits(double left, double right) {
  return std::bit_cast<uint64_t>(left) == std::bit_cast<uint64_t>(right) || (std::isnan(left) && std::isnan(right));
}

bool same_items(PyObject* left, PyObject* right) {
  const Py_ssize_t size = PyTuple_GET_SIZE(left);
  if (size != PyTuple_GET_SIZE(right)) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!same_constant(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
  }
  return true;
}

// The members that a set holds, whatever its class says when it is iterated over.
Ref own_members(PyObject* set) {
  Ref iterator = checked(PySet_Type.tp_iter(set));
  return checked(PySequence_Tuple(iterator.get()));
}

bool same_members(PyObject* left, PyObject* right) {
  if (PySet_GET_SIZE(left) != PySet_GET_SIZE(right)) return false;
  Ref mine = own_members(left);
  Ref theirs = own_members(right);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mine.get()); ++i) {
    bool found = false;
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(theirs.get()) && !found; ++j) {
      found = same_constant(PyTuple_GET_ITEM(mine.get(), i), PyTuple_GET_ITEM(theirs.get(), j));
    }
    if (!found) return false;
  }
  return true;
}

bool same_range(PyObject* left, PyObject* right) {
  for (const char* name : {"start", "stop", "step"}) {
    Ref mine = checked(PyObject_GetAttrString(left, name));
    Ref theirs = checked(PyObject_GetAttrString(right, name));
    if (!same_constant(mine.get(), theirs.get())) return false;
  }
  return true;
}

bool equal(PyObject* left, PyObject* right) { return checked(PyObject_RichCompareBool(left, right, Py_EQ)) == 1; }

class TypeIs final : public Leaf {
 public:
  TypeIs(PyObject* type, int spec) : Leaf(spec), type_(reinterpret_cast<PyTypeObject*>(type)) {}
  bool holds(PyObject* value) const override { return Py_TYPE(value) == type_; }

 private:
  PyTypeObject* type_;
};

// An int or a float of that size at most; a limit of floats that is finite refuses infinities and nan.
class NumberIs final : public Leaf {
 public:
  NumberIs(PyObject* payload, int spec) : Leaf(spec) {
    PyObject* limit =
        PyTuple_CheckExact(payload) && PyTuple_GET_SIZE(payload) == 2 ? PyTuple_GET_ITEM(payload, 1) : Py_None;
    if (!PyLong_CheckExact(limit) && !PyFloat_CheckExact(limit)) raise(PyExc_TypeError, "NumberIs needs (type, limit)");
    type_ = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(payload, 0));
    if (type_ == &PyLong_Type) {
      whole_ = PyLong_AsLongLong(limit);
    } else {
      real_ = PyFloat_AsDouble(limit);
    }
    if (PyErr_Occurred()) throw PythonError();
  }
  bool holds(PyObject* value) const override {
    if (Py_TYPE(value) != type_) return false;
    if (type_ == &PyFloat_Type) return std::fabs(PyFloat_AS_DOUBLE(value)) <= real_;
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && -whole_ <= number && number <= whole_;
  }

 private:
  PyTypeObject* type_;
  int64_t whole_ = 0;
  double real_ = 0;
};

// Payload: the object itself, or (weak reference,) so that an entry does not keep a user's model alive.
class IdentityIs final : public Leaf {
 public:
  IdentityIs(PyObject* payload, int spec) : Leaf(spec), object_(payload) {
    if (PyTuple_CheckExact(payload) && PyTuple_GET_SIZE(payload) == 1 &&
        PyWeakref_Check(PyTuple_GET_ITEM(payload, 0))) {
      reference_ = PyTuple_GET_ITEM(payload, 0);
      object_ = target();
    }
  }
  bool holds(PyObject* value) const override { return value == object_ && alive(); }
  bool alive() const override { return reference_ == nullptr || target() == object_; }

 private:
  PyObject* target() const { return reinterpret_cast<PyWeakReference*>(reference_)->wr_object; }
  PyObject* reference_ = nullptr;
  PyObject* object_;
};

class ConstantIs final : public Leaf {
 public:
  ConstantIs(PyObject* constant, bool expected, int spec) : Leaf(spec), constant_(constant), expected_(expected) {}
  bool holds(PyObject* value) const override { return same_constant(value, constant_) == expected_; }

 private:
  PyObject* constant_;
  bool expected_;
};

class SequenceLength final : public Leaf {
 public:
  SequenceLength(Py_ssize_t length, int spec) : Leaf(spec), length_(length) {}
  bool holds(PyObject* value) const override {
    // Of subclasses too: their own `__len__` may say otherwise, and note that it was asked.
    if (PyList_Check(value) || PyTuple_Check(value)) return Py_SIZE(value) == length_;
    if (PyDict_Check(value)) return PyDict_GET_SIZE(value) == length_;
    if (PyAnySet_Check(value)) return PySet_GET_SIZE(value) == length_;
    return PyObject_Size(value) == length_;
  }

 private:
  Py_ssize_t length_;
};

class DictKeys final : public Leaf {
 public:
  DictKeys(PyObject* keys, int spec) : Leaf(spec), keys_(keys) {}
  bool holds(PyObject* value) const override {
    // Its class may say otherwise when it is iterated over, and note that it was; the order of an `OrderedDict` is no
    // dict's, and names less than all where a method of dict wrote to it.
    if (PyDict_Check(value) && PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(keys_)) return false;
    if (PyDict_Check(value) && !PyODict_Check(value)) return plain(value);
    // Of a set the order is that of its table, which its members do not tell.
    if (!PyDict_Check(value) && !PyAnySet_Check(value) && Py_TYPE(value) != &PyDictProxy_Type) return false;
    return by_iteration(value);
  }

 private:
  bool plain(PyObject* value) const {
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    for (Py_ssize_t i = 0; PyDict_Next(value, &position, &key, nullptr); ++i) {
      if (!same_constant(key, PyTuple_GET_ITEM(keys_, i))) return false;
    }
    return true;
  }
  static PyObject* own_iterator(PyObject* value) {
    if (PyODict_Check(value)) return PyODict_Type.tp_iter(value);
    return PyAnySet_Check(value) ? PySet_Type.tp_iter(value) : PyObject_GetIter(value);
  }
  bool by_iteration(PyObject* value) const {
    Ref iterator = checked(own_iterator(value));
    Py_ssize_t i = 0;
    while (Ref key = Ref::steal(PyIter_Next(iterator.get()))) {
      if (i >= PyTuple_GET_SIZE(keys_) || !same_constant(key.get(), PyTuple_GET_ITEM(keys_, i))) return false;
      ++i;
    }
    return i == PyTuple_GET_SIZE(keys_) && !PyErr_Occurred();
  }
  PyObject* keys_;
};

// Payload: (key, present).
class Contains final : public Leaf {
 public:
  Contains(PyObject* payload, int spec)
      : Leaf(spec),
        key_(PyTuple_GetItem(payload, 0)),
        present_(PyTuple_GetItem(payload, 1) == Py_True),
        hash_(PyObject_Hash(key_)) {
    if (hash_ == -1) PyErr_Clear();  // what cannot be hashed is asked again, and raises there
  }
  bool holds(PyObject* value) const override {
    if (PyDict_Check(value)) return of_dict(value);
    int found = 0;
    if (PyAnySet_Check(value)) {
      found = PySet_Contains(value, key_);
    } else if (Py_TYPE(value) == &PyDictProxy_Type) {
      found = PySequence_Contains(value, key_);
    } else {
      return false;
    }
    return is_as_told(found);
  }

 private:
  bool is_as_told(int found) const { return found >= 0 && (found == 1) == present_; }
  // A module is asked for several names at each call, an optimizer's state for each parameter, and both are hardly ever
  // written to between two.
  bool of_dict(PyObject* dict) const {
    const uint64_t version = compat::version_of_attributes(dict);
    if (version != 0 && version == version_.load(std::memory_order_relaxed)) return true;
    if (!is_as_told(in_dict(dict))) return false;
    version_.store(version, std::memory_order_relaxed);
    return true;
  }

  // A tensor's hash is a function of Python's.
  int in_dict(PyObject* dict) const {
    if (hash_ == -1) return PyDict_Contains(dict, key_);
    if (_PyDict_GetItem_KnownHash(dict, key_, hash_) != nullptr) return 1;
    return PyErr_Occurred() ? -1 : 0;
  }

  PyObject* key_;
  bool present_;
  Py_hash_t hash_;
  mutable std::atomic<uint64_t> version_{0};
};

class SetEquals final : public Leaf {
 public:
  SetEquals(PyObject* members, int spec) : Leaf(spec), members_(members) {}
  bool holds(PyObject* value) const override { return PyAnySet_Check(value) && same_members(value, members_); }

 private:
  PyObject* members_;
};

// Payload: (name, present).
class HasAttribute final : public Leaf {
 public:
  HasAttribute(PyObject* payload, int spec)
      : Leaf(spec), name_(PyTuple_GetItem(payload, 0)), present_(PyTuple_GetItem(payload, 1) == Py_True) {}
  bool holds(PyObject* value) const override {
    PyObject* found = nullptr;
    const int status = compat::lookup_attribute(value, name_, &found);
    Py_XDECREF(found);
    return status >= 0 && (status == 1) == present_;
  }
  bool runs_python() const override { return true; }

 private:
  PyObject* name_;
  bool present_;
};

// Payload: (code, globals).
class FunctionIs final : public Leaf {
 public:
  FunctionIs(PyObject* payload, int spec) : Leaf(spec) {
    if (!PyTuple_CheckExact(payload) || PyTuple_GET_SIZE(payload) != 2)
      raise(PyExc_TypeError, "FunctionIs needs code and globals");
    code_ = PyTuple_GET_ITEM(payload, 0);
    globals_ = PyTuple_GET_ITEM(payload, 1);
  }
  bool holds(PyObject* value) const override {
    if (!PyFunction_Check(value)) return false;
    auto* function = reinterpret_cast<PyFunctionObject*>(value);
    return function->func_code == code_ && function->func_globals == globals_;
  }

 private:
  PyObject* code_;
  PyObject* globals_;
};

// Payload: ((name, class to search behind or None, class that has it or None, the object or None), ...).
class ClassMembers final : public Leaf {
 public:
  ClassMembers(PyObject* members, int spec) : Leaf(spec), members_(members) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); ++i) {
      PyObject* member = PyTuple_GET_ITEM(members, i);
      if (!PyTuple_CheckExact(member) || PyTuple_GET_SIZE(member) != 4)
        raise(PyExc_TypeError, "a class member is a tuple of 4");
    }
  }

  bool holds(PyObject* value) const override {
    if (!PyType_Check(value)) return false;
    auto* type = reinterpret_cast<PyTypeObject*>(value);
    const unsigned int version = compat::version_of(type);
    if (version != 0 && version == version_.load(std::memory_order_relaxed)) return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members_); ++i) {
      if (!holds_one(type, PyTuple_GET_ITEM(members_, i))) return false;
    }
    // Looking something up is what gives a class its version.
    if (PyTuple_GET_SIZE(members_) > 0) _PyType_Lookup(type, PyTuple_GET_ITEM(PyTuple_GET_ITEM(members_, 0), 0));
    version_.store(compat::version_of(type), std::memory_order_relaxed);
    return true;
  }

 private:
  static bool holds_one(PyTypeObject* type, PyObject* member) {
    PyObject* after = PyTuple_GET_ITEM(member, 1);
    PyObject* order = type->tp_mro;
    bool searching = after == Py_None;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
      PyObject* base = PyTuple_GET_ITEM(order, i);
      if (!searching) {
        searching = base == after;
        continue;
      }
      Ref names = checked(compat::class_namespace(reinterpret_cast<PyTypeObject*>(base)));
      PyObject* found = PyDict_GetItemWithError(names.get(), PyTuple_GET_ITEM(member, 0));
      if (found == nullptr) {
        if (PyErr_Occurred()) throw PythonError();
        continue;
      }
      PyObject* code = PyTuple_GET_ITEM(member, 3);
      return base == PyTuple_GET_ITEM(member, 2) && (code == Py_None || code == found || is_weakly(code, found));
    }
    return searching && PyTuple_GET_ITEM(member, 2) == Py_None;
  }

  // Functions are held weakly.
  static bool is_weakly(PyObject* reference, PyObject* found) {
    return PyWeakref_CheckRefExact(reference) && PyWeakref_GetObject(reference) == found;
  }

  PyObject* members_;
  mutable std::atomic<unsigned int> version_{0};
};

// Payload: (namespace, ((name, object) or (name,) where it is not there, ...)).
class ModuleBindings final : public Leaf {
 public:
  ModuleBindings(PyObject* payload, int spec)
      : Leaf(spec), names_(PyTuple_GetItem(payload, 0)), bound_(PyTuple_GetItem(payload, 1)) {
    if (names_ == nullptr || !PyDict_Check(names_)) raise(PyExc_TypeError, "ModuleBindings needs a namespace");
    if (bound_ == nullptr || !PyTuple_CheckExact(bound_))
      raise(PyExc_TypeError, "ModuleBindings needs a tuple of bindings");
  }

  bool holds(PyObject*) const override {
    const uint64_t version = compat::version_of_dict(names_);
    if (version == version_.load(std::memory_order_relaxed)) return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bound_); ++i) {
      PyObject* binding = PyTuple_GET_ITEM(bound_, i);
      PyObject* found = PyDict_GetItemWithError(names_, PyTuple_GET_ITEM(binding, 0));
      if (found == nullptr && PyErr_Occurred()) throw PythonError();
      if (found != (PyTuple_GET_SIZE(binding) == 1 ? nullptr : PyTuple_GET_ITEM(binding, 1))) return false;
    }
    version_.store(version, std::memory_order_relaxed);
    return true;
  }

 private:
  PyObject* names_;
  PyObject* bound_;
  mutable std::atomic<uint64_t> version_{0};
};

class PythonCheck final : public Leaf {
 public:
  PythonCheck(PyObject* predicate, int spec) : Leaf(spec), predicate_(predicate) {}
  bool holds(PyObject* value) const override {
    Ref answer = checked(PyObject_CallOneArg(predicate_, value));
    return checked(PyObject_IsTrue(answer.get())) == 1;
  }
  bool runs_python() const override { return true; }

 private:
  PyObject* predicate_;
};

int slot_at(PyObject* payload, Py_ssize_t index) {
  PyObject* item = PyTuple_GetItem(payload, index);
  if (item == nullptr) throw PythonError();
  const long slot = PyLong_AsLong(item);
  if (slot < 0) raise(PyExc_ValueError, "a slot is a number from 0");
  return static_cast<int>(slot);
}

// Payload: (slot, slot).
class Alias final : public Relation {
 public:
  Alias(PyObject* payload, int spec) : Relation(spec), left_(slot_at(payload, 0)), right_(slot_at(payload, 1)) {}
  bool holds(PyObject* const* captured) const override { return captured[left_] == captured[right_]; }

 private:
  int left_, right_;
};

// Payload: tuple of slots; of storages, the number of slots that are written, those slots, then the ones that are only
// read.
class NoAlias final : public Relation {
 public:
  NoAlias(PyObject* payload, bool storages, int spec) : Relation(spec), storages_(storages) {
    for (Py_ssize_t i = storages ? 1 : 0; i < PyTuple_Size(payload); ++i) slots_.push_back(slot_at(payload, i));
    single_ = storages ? std::min(static_cast<size_t>(slot_at(payload, 0)), slots_.size()) : slots_.size();
    while (capacity_ < 2 * single_) capacity_ *= 2;
  }
  bool holds(PyObject* const* captured) const override {
    if (capacity_ <= kOnStack) {
      const void* table[kOnStack];
      return distinct(captured, table);
    }
    std::unique_ptr<const void*[]> table(new const void*[capacity_]);
    return distinct(captured, table.get());
  }

 private:
  static constexpr size_t kOnStack = 512;
  // A hash table of the first ones finds what appears again.
  bool distinct(PyObject* const* captured, const void** table) const {
    std::fill_n(table, capacity_, nullptr);
    bool foreign = false;
    for (size_t at = 0; at < slots_.size(); ++at) {
      const void* object = captured[slots_[at]];
      if (storages_) {
        const Memory memory = memory_of(captured[slots_[at]]);
        object = memory.start;
        foreign = foreign || memory.foreign;
      }
      // Objects are 16-byte aligned; the multiplier spreads neighbours.
      size_t place = ((reinterpret_cast<uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ULL >> 32) & (capacity_ - 1);
      while (table[place] != nullptr) {
        if (table[place] == object) return false;
        place = (place + 1) & (capacity_ - 1);
      }
      if (at < single_) table[place] = object;
    }
    return !foreign || apart(captured);
  }
  // Whether the memory of the first ones overlaps no other's, in the order of addresses (its twin: guards/memory.py).
  bool apart(PyObject* const* captured) const {
    struct Span {
      uintptr_t start, end;
      bool single;
    };
    std::vector<Span> spans;
    spans.reserve(slots_.size());
    for (size_t at = 0; at < slots_.size(); ++at) {
      const Memory memory = memory_of(captured[slots_[at]]);
      const auto start = reinterpret_cast<uintptr_t>(memory.start);
      spans.push_back({start, start + static_cast<uintptr_t>(memory.bytes), at < single_});
    }
    std::sort(spans.begin(), spans.end(), [](const Span& left, const Span& right) { return left.start < right.start; });
    uintptr_t end = 0, end_of_single = 0;
    for (const Span& span : spans) {
      if (span.start < (span.single ? end : end_of_single)) return false;
      end = std::max(end, span.end);
      if (span.single) end_of_single = std::max(end_of_single, span.end);
    }
    return true;
  }
  bool storages_;
  std::vector<int> slots_;
  size_t single_;  // how many of them must be like no other
  size_t capacity_ = 8;
};

// A leaf must not throw while a frame is being looked up: a Python error inside one means that it does not hold.
template <typename Inner>
class Contained final : public Leaf {
 public:
  template <typename... Args>
  explicit Contained(Args... args) : Leaf(0), inner_(args...) {
    spec = inner_.spec;
  }
  bool holds(PyObject* value) const override {
    try {
      return inner_.holds(value);
    } catch (const PythonError&) {
      return false;
    }
  }
  bool runs_python() const override { return inner_.runs_python(); }

 private:
  Inner inner_;
};

}  // namespace

bool same_constant(PyObject* left, PyObject* right) {
  if (left == right) return true;
  PyTypeObject* type = Py_TYPE(left);
  if (type != Py_TYPE(right)) return false;
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type) return equal(left, right);
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
  if (type == &PyComplex_Type) {
    const Py_complex mine = PyComplex_AsCComplex(left), theirs = PyComplex_AsCComplex(right);
    return same_bits(mine.real, theirs.real) && same_bits(mine.imag, theirs.imag);
  }
  if (PyTuple_Check(left)) return same_items(left, right);
  if (PyAnySet_Check(left)) return same_members(left, right);
  if (type == &PyRange_Type || type == &PySlice_Type) return same_range(left, right);
  // torch.device objects are made anew each time; everything else that reaches here goes by identity.
  if (std::strcmp(type->tp_name, "torch.device") == 0) return equal(left, right);
  return false;
}

std::unique_ptr<Leaf> make_leaf(int kind, PyObject* payload, int spec) {
  switch (static_cast<LeafKind>(kind)) {
    case LeafKind::kTypeIs:
      if (!PyType_Check(payload)) raise(PyExc_TypeError, "TypeIs needs a type");
      return std::make_unique<TypeIs>(payload, spec);
    case LeafKind::kNumberIs: return std::make_unique<NumberIs>(payload, spec);
    case LeafKind::kIdentityIs: return std::make_unique<IdentityIs>(payload, spec);
    case LeafKind::kConstantIs:
    case LeafKind::kNotConstant:
      return std::make_unique<Contained<ConstantIs>>(payload, static_cast<LeafKind>(kind) == LeafKind::kConstantIs,
                                                     spec);
    case LeafKind::kTensorMatch: return make_tensor_leaf(payload, spec);
    case LeafKind::kSequenceLength: {
      const Py_ssize_t length = PyLong_AsSsize_t(payload);
      if (length < 0) raise(PyExc_ValueError, "SequenceLength needs a number from 0");
      return std::make_unique<Contained<SequenceLength>>(length, spec);
    }
    case LeafKind::kDictKeys:
      if (!PyTuple_CheckExact(payload)) raise(PyExc_TypeError, "DictKeys needs a tuple");
      return std::make_unique<Contained<DictKeys>>(payload, spec);
    case LeafKind::kContains: return std::make_unique<Contained<Contains>>(payload, spec);
    case LeafKind::kSetEquals:
      if (!PyAnySet_Check(payload)) raise(PyExc_TypeError, "SetEquals needs a set");
      return std::make_unique<Contained<SetEquals>>(payload, spec);
    case LeafKind::kHasAttribute: return std::make_unique<Contained<HasAttribute>>(payload, spec);
    case LeafKind::kFunctionIs: return std::make_unique<FunctionIs>(payload, spec);
    case LeafKind::kGlobalState: return make_state_leaf(payload, spec);
    case LeafKind::kClassMembers:
      if (!PyTuple_CheckExact(payload)) raise(PyExc_TypeError, "ClassMembers needs a tuple");
      return std::make_unique<Contained<ClassMembers>>(payload, spec);
    case LeafKind::kModuleBindings:
      if (!PyTuple_CheckExact(payload)) raise(PyExc_TypeError, "ModuleBindings needs a tuple");
      return std::make_unique<Contained<ModuleBindings>>(payload, spec);
    case LeafKind::kPythonCheck: return std::make_unique<Contained<PythonCheck>>(payload, spec);
  }
  raise(PyExc_ValueError, "unknown kind of leaf");
}

std::unique_ptr<Relation> make_relation(int kind, PyObject* payload, int spec) {
  if (!PyTuple_CheckExact(payload)) raise(PyExc_TypeError, "a relation's payload is a tuple");
  switch (static_cast<RelationKind>(kind)) {
    case RelationKind::kAlias: return std::make_unique<Alias>(payload, spec);
    case RelationKind::kNoAlias:
    case RelationKind::kDistinctStorage:
      return std::make_unique<NoAlias>(payload, static_cast<RelationKind>(kind) != RelationKind::kNoAlias, spec);
    case RelationKind::kShape: return make_shape_relation(payload, spec);
  }
  raise(PyExc_ValueError, "unknown kind of relation");
}

}  // namespace flambeau
