// GuardTree: evaluation, and the Python type that build.py fills.
#include "guards/tree.hpp"

#include <structmember.h>

#include "guards/access.hpp"

namespace flambeau {
namespace {

PyTypeObject* tree_type = nullptr;

bool differs(const GuardTree* tree, int spec) {
  const std::vector<char>& marks = *tree->differing;
  return static_cast<size_t>(spec) < marks.size() && marks[static_cast<size_t>(spec)] != 0;
}

// With `asked`, only those of its guards are looked at that tell its entry from others.
template <bool kAll>
bool check_node(const Node& node, PyObject* value, Evaluation& evaluation, const GuardTree* asked) {
  for (const auto& leaf : node.leaves) {
    if constexpr (!kAll) {
      if (!differs(asked, leaf->spec)) continue;
    }
    if (!leaf->holds(value)) {
      evaluation.failed = leaf->spec;
      return false;
    }
  }
  for (const auto& child : node.children) {
    PyObject* found = reach(*child, value, evaluation);
    if (found == nullptr) {
      evaluation.failed = child->spec;
      return false;
    }
    if (evaluation.careful) evaluation.own(Py_NewRef(found));
    if (child->slot >= 0) evaluation.captured[child->slot] = found;
    if (!check_node<kAll>(*child, found, evaluation, asked)) return false;
  }
  return true;
}

template <bool kAll>
bool check_tree(const GuardTree* tree, Evaluation& evaluation) {
  evaluation.careful = tree->careful;
  bool held = tree->root != nullptr && check_node<kAll>(*tree->root, Py_None, evaluation, tree);
  if (held) {
    for (const auto& relation : *tree->relations) {
      if constexpr (!kAll) {
        if (!differs(tree, relation->spec)) continue;
      }
      if (!relation->holds(evaluation.captured)) {
        evaluation.failed = relation->spec;
        held = false;
        break;
      }
    }
  }
  if (!held && PyErr_Occurred()) PyErr_Clear();
  return held;
}

bool node_alive(const Node& node) {
  for (const auto& leaf : node.leaves) {
    if (!leaf->alive()) return false;
  }
  for (const auto& child : node.children) {
    if (!node_alive(*child)) return false;
  }
  return true;
}

GuardTree* as_tree(PyObject* object) { return reinterpret_cast<GuardTree*>(object); }

void keep_alive(GuardTree* tree, PyObject* object) { checked(PyList_Append(tree->keep, object)); }

PyObject* tree_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"specs", nullptr};
  PyObject* specs = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:GuardTree", const_cast<char**>(names), &specs)) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        Ref made = checked(type->tp_alloc(type, 0));
        GuardTree* tree = as_tree(made.get());
        tree->keep = checked(PyList_New(0)).release();
        tree->specs = Py_NewRef(specs);
        tree->root = new Node();
        tree->nodes = new std::vector<Node*>();
        tree->relations = new std::vector<std::unique_ptr<Relation>>();
        tree->differing = new std::vector<char>();
        return made.release();
      },
      nullptr);
}

int tree_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_tree(self)->keep);
  Py_VISIT(as_tree(self)->specs);
  return 0;
}

// Nodes borrow from `keep`, so a cleared tree must not be evaluated again: it loses its nodes first and holds no
// longer.
int tree_clear(PyObject* self) {
  GuardTree* tree = as_tree(self);
  delete std::exchange(tree->root, nullptr);
  delete std::exchange(tree->nodes, nullptr);
  delete std::exchange(tree->relations, nullptr);
  delete std::exchange(tree->differing, nullptr);
  Py_CLEAR(tree->keep);
  Py_CLEAR(tree->specs);
  return 0;
}

void tree_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  tree_clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

Node* node_at(GuardTree* tree, Py_ssize_t id) {
  if (id == -1) return tree->root;
  if (id < 0 || id >= static_cast<Py_ssize_t>(tree->nodes->size())) raise(PyExc_IndexError, "no such node");
  return (*tree->nodes)[static_cast<size_t>(id)];
}

bool is_dunder(PyObject* name) {
  return PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name) > 2 && PyUnicode_READ_CHAR(name, 0) == '_' &&
         PyUnicode_READ_CHAR(name, 1) == '_';
}

// node(parent, access, key, number, spec) -> id; parent -1 is the frame.
PyObject* tree_node(PyObject* self, PyObject* args) {
  Py_ssize_t parent = 0;
  int access = 0, number = 0, spec = 0;
  PyObject* key = nullptr;
  if (!PyArg_ParseTuple(args, "niOii:node", &parent, &access, &key, &number, &spec)) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        GuardTree* tree = as_tree(self);
        if (access < 0 || access >= kAccessCount) raise(PyExc_ValueError, "unknown access");
        auto made = std::make_unique<Node>();
        made->access = static_cast<Access>(access);
        made->number = number;
        made->spec = spec;
        Ref shared = Ref::share(key);
        if (PyUnicode_CheckExact(key)) {
          PyObject* interned = Py_NewRef(key);
          PyUnicode_InternInPlace(&interned);
          shared = Ref::steal(interned);
        }
        keep_alive(tree, shared.get());
        made->key = shared.get();
        const bool by_hash = made->access == Access::kGlobal || made->access == Access::kBuiltin ||
                             made->access == Access::kAttribute || made->access == Access::kDictItem;
        if (by_hash) {
          made->hash = PyObject_Hash(key);
          if (made->hash == -1) throw PythonError();
        }
        if (made->access == Access::kAttribute) made->number = is_dunder(key);
        tree->careful |= made->access == Access::kAttribute || made->access == Access::kItem ||
                         made->access == Access::kCallResult || made->access == Access::kDictKeyAt;
        Node* raw = made.get();
        node_at(tree, parent)->children.push_back(std::move(made));
        tree->nodes->push_back(raw);
        return PyLong_FromSize_t(tree->nodes->size() - 1);
      },
      nullptr);
}

// leaf(node, kind, payload, spec)
PyObject* tree_leaf(PyObject* self, PyObject* args) {
  Py_ssize_t node = 0;
  int kind = 0, spec = 0;
  PyObject* payload = nullptr;
  if (!PyArg_ParseTuple(args, "niOi:leaf", &node, &kind, &payload, &spec)) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        GuardTree* tree = as_tree(self);
        Node* place = node_at(tree, node);
        keep_alive(tree, payload);
        place->leaves.push_back(make_leaf(kind, payload, spec));
        tree->careful |= place->leaves.back()->runs_python();
        return Py_NewRef(Py_None);
      },
      nullptr);
}

// capture(node) -> slot
PyObject* tree_capture(PyObject* self, PyObject* argument) {
  const Py_ssize_t id = PyLong_AsSsize_t(argument);
  if (id == -1 && PyErr_Occurred()) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        GuardTree* tree = as_tree(self);
        Node* node = node_at(tree, id);
        if (node->slot < 0) node->slot = tree->slots++;
        return PyLong_FromLong(node->slot);
      },
      nullptr);
}

// relation(kind, payload, spec)
PyObject* tree_relation(PyObject* self, PyObject* args) {
  int kind = 0, spec = 0;
  PyObject* payload = nullptr;
  if (!PyArg_ParseTuple(args, "iOi:relation", &kind, &payload, &spec)) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        GuardTree* tree = as_tree(self);
        keep_alive(tree, payload);
        tree->relations->push_back(make_relation(kind, payload, spec));
        return Py_NewRef(Py_None);
      },
      nullptr);
}

// differ(specs): these tell the entry from others of its code
PyObject* tree_differ(PyObject* self, PyObject* specs) {
  return boundary(
      [&]() -> PyObject* {
        Ref items = checked(PySequence_Tuple(specs));
        std::vector<char>& marks = *as_tree(self)->differing;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
          const Py_ssize_t spec = PyLong_AsSsize_t(PyTuple_GET_ITEM(items.get(), i));
          if (spec == -1 && PyErr_Occurred()) throw PythonError();
          if (spec < 0) raise(PyExc_IndexError, "no such spec");
          if (marks.size() <= static_cast<size_t>(spec)) marks.resize(static_cast<size_t>(spec) + 1);
          marks[static_cast<size_t>(spec)] = 1;
        }
        return Py_NewRef(Py_None);
      },
      nullptr);
}

// check(f_locals, f_globals, builtins=None) -> index of the first spec that fails, or -1
PyObject* tree_check(PyObject* self, PyObject* args) {
  PyObject *locals = nullptr, *globals = nullptr, *builtins = Py_None;
  if (!PyArg_ParseTuple(args, "OO!|O:check", &locals, &PyDict_Type, &globals, &builtins)) return nullptr;
  return boundary(
      [&]() -> PyObject* {
        FrameView view;
        view.locals = locals;
        view.globals = globals;
        view.builtins = PyDict_Check(builtins) ? builtins : PyEval_GetBuiltins();
        CapturedValues values(as_tree(self)->slots);
        Evaluation evaluation(view, values.data());
        return PyLong_FromLong(evaluate(as_tree(self), evaluation) ? -1 : evaluation.failed);
      },
      nullptr);
}

PyObject* tree_alive(PyObject* self, PyObject*) { return PyBool_FromLong(is_alive(as_tree(self))); }

PyMethodDef tree_methods[] = {
    {"node", tree_node, METH_VARARGS, "node(parent, access, key, number, spec) -> id; parent -1 is the frame"},
    {"leaf", tree_leaf, METH_VARARGS, "leaf(node, kind, payload, spec)"},
    {"capture", tree_capture, METH_O, "capture(node) -> slot"},
    {"relation", tree_relation, METH_VARARGS, "relation(kind, payload, spec)"},
    {"differ", tree_differ, METH_O, "differ(specs): the specs that tell the entry from others of its code"},
    {"check", tree_check, METH_VARARGS, "check(f_locals, f_globals, builtins=None) -> failing spec or -1"},
    {"alive", tree_alive, METH_NOARGS, "False once some guard can never hold again"},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef tree_members[] = {
    {"specs", T_OBJECT_EX, offsetof(GuardTree, specs), READONLY, "the specs this tree was built from"},
    {"slots", T_INT, offsetof(GuardTree, slots), READONLY, "how many values a check captures"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot tree_slots[] = {
    {Py_tp_doc, const_cast<char*>("The assumptions of one compiled entry, checked without the interpreter.")},
    {Py_tp_new, reinterpret_cast<void*>(tree_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(tree_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(tree_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(tree_clear)},
    {Py_tp_methods, tree_methods},
    {Py_tp_members, tree_members},
    {0, nullptr},
};

PyType_Spec tree_spec = {"flambeau_capture._C.GuardTree", sizeof(GuardTree), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                         tree_slots};

}  // namespace

bool evaluate(const GuardTree* tree, Evaluation& evaluation) { return check_tree<true>(tree, evaluation); }

bool evaluate_differing(const GuardTree* tree, Evaluation& evaluation) { return check_tree<false>(tree, evaluation); }

bool is_alive(const GuardTree* tree) { return tree->root != nullptr && node_alive(*tree->root); }

bool is_guard_tree(PyObject* object) { return Py_TYPE(object) == tree_type; }

PyTypeObject* add_guard_tree_type(PyObject* module) {
  Ref type = checked(PyType_FromModuleAndSpec(module, &tree_spec, nullptr));
  checked(PyModule_AddObjectRef(module, "GuardTree", type.get()));
  tree_type = reinterpret_cast<PyTypeObject*>(type.release());
  return tree_type;
}

}  // namespace flambeau
