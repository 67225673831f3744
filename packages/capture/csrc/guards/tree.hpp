// GuardTree: the assumptions of one compiled entry, checked without the interpreter.
#pragma once

#include <memory>
#include <vector>

#include "flambeau/errors.hpp"
#include "guards/node.hpp"

namespace flambeau {

struct GuardTree {
  PyObject_HEAD Node* root;               // children are the roots of all sources
  std::vector<Node*>* nodes; // by id, for the builder
  std::vector<std::unique_ptr<Relation>>* relations;
  PyObject* keep;   // list: every object that nodes and leaves borrow
  PyObject* specs;  // what explain.py needs; any object
  int slots;
  std::vector<char>*
      differing; // by spec: whether it tells the entry from others of its code; empty where that is not known
  bool careful;  // evaluation may run Python code
};

// Evaluates on the stack where the tree captures few values, on the heap otherwise.
class CapturedValues {
 public:
  explicit CapturedValues(int count) {
    if (count > kInline) {
      heap_.reset(new PyObject*[static_cast<size_t>(count)]);
      data_ = heap_.get();
    }
  }
  PyObject** data() { return data_; }

 private:
  static constexpr int kInline = 64;
  PyObject* inline_[kInline];
  std::unique_ptr<PyObject*[]> heap_;
  PyObject** data_ = inline_;
};

// True when every guard holds; otherwise `evaluation.failed` is the index of the first spec that does not. Leaves no
// exception.
bool evaluate(const GuardTree* tree, Evaluation& evaluation);

// The same of the guards alone that tell the entry from others of its code; the values to capture must be reached all
// the same.
bool evaluate_differing(const GuardTree* tree, Evaluation& evaluation);

// False once some guard can never hold again (an object it names is gone).
bool is_alive(const GuardTree* tree);

bool is_guard_tree(PyObject* object);
PyTypeObject* add_guard_tree_type(PyObject* module);

}  // namespace flambeau
