// The parts of a guard tree: nodes reach values, leaves judge one value, relations judge several.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frame_view.hpp"

namespace flambeau {

enum class Access : int {
  kLocal,        // roots: number = index among the parameters
  kFreeVariable, // number = index in the closure
  kNamedLocal,   // key = name; only checks from Python see it
  kGlobal,
  kBuiltin,
  kPinned,
  kNothing,  // the root of leaves without a value (global state)
  kAttribute,
  kInstanceDict,
  kSequenceItem,  // number = index of an exact list or tuple
  kDictItem,      // key of a plain dict
  kItem,          // any other subscript
  kDictKeyAt,
  kTypeOf,
  kCellContents,
  kTensorSize,
  kTensorStride,
  kTensorOffset,
  kCallResult,
  kStoredItem,  // what an instance of a container class holds, whatever its own subscript does
  kComputed,    // key = the function of the value
};
inline constexpr int kAccessCount = static_cast<int>(Access::kComputed) + 1;

// One evaluation: captured values by slot, and owned temporaries that live until its end.
struct Evaluation {
  const FrameView& frame;
  PyObject** captured;
  std::vector<PyObject*> owned;
  int failed = -1;
  bool careful = false;  // the tree may run Python code, so values reached on the way must be owned, not borrowed

  Evaluation(const FrameView& view, PyObject** slots) : frame(view), captured(slots) {}
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation() {
    for (PyObject* object : owned) Py_DECREF(object);
  }
  PyObject* own(PyObject* object) {
    if (object != nullptr) owned.push_back(object);
    return object;
  }
};

struct Leaf {
  explicit Leaf(int spec_index) : spec(spec_index) {}
  virtual ~Leaf() = default;
  // Whether the assumption holds; a Python exception left set counts as no and is cleared by the tree.
  virtual bool holds(PyObject* value) const = 0;
  // False once the assumption can never hold again.
  virtual bool alive() const { return true; }
  virtual bool runs_python() const { return false; }
  int spec;
};

struct Relation {
  explicit Relation(int spec_index) : spec(spec_index) {}
  virtual ~Relation() = default;
  virtual bool holds(PyObject* const* captured) const = 0;
  int spec;
};

struct Node {
  Access access = Access::kNothing;
  int number = 0;
  int slot = -1;           // where the value is captured, or -1
  int spec = 0;            // the first guard that needs this node, blamed when the value cannot be reached
  PyObject* key = nullptr; // borrowed: the tree keeps it
  Py_hash_t hash = 0;
  std::vector<std::unique_ptr<Leaf>> leaves;
  std::vector<std::unique_ptr<Node>> children;
};

// Makers: `payload` is what build.py hands over for a kind; the returned object borrows from it (the tree keeps it
// alive). They throw when the payload is malformed.
enum class LeafKind : int {
  kTypeIs,
  kIdentityIs,
  kConstantIs,
  kNotConstant,
  kTensorMatch,
  kSequenceLength,
  kDictKeys,
  kContains,
  kSetEquals,
  kHasAttribute,
  kFunctionIs,
  kGlobalState,
  kPythonCheck,
  kClassMembers,
  kModuleBindings,
  kNumberIs,
};
enum class RelationKind : int { kAlias, kNoAlias, kShape, kDistinctStorage };

std::unique_ptr<Leaf> make_leaf(int kind, PyObject* payload, int spec);
std::unique_ptr<Leaf> make_tensor_leaf(PyObject* payload, int spec);
std::unique_ptr<Leaf> make_state_leaf(PyObject* payload, int spec);
std::unique_ptr<Relation> make_shape_relation(PyObject* payload, int spec);
std::unique_ptr<Relation> make_relation(int kind, PyObject* payload, int spec);

// From now on guards of the global state ask this context variable what the scopes around a frame say of recording.
void watch_scopes(PyObject* variable);

// Exact equality of constants: types included, floats by bits (every nan equals every nan).
bool same_constant(PyObject* left, PyObject* right);

// Sizes, strides and offsets of a tensor as int64; false where the tensor has none that are plain numbers.
bool tensor_extent(PyObject* object, Access what, int dim, int64_t* result);

// The memory of a tensor's storage, or what stands for it where it has none.
struct Memory {
  const void* start;
  int64_t bytes;
  bool foreign;  // not from torch's allocator (NumPy's, DLPack's): other storages may begin anywhere in it
};

Memory memory_of(PyObject* object);

}  // namespace flambeau
