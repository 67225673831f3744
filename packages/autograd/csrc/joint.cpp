#include "joint.hpp"

#include <ATen/record_function.h>
#include <structmember.h>

#include <algorithm>
#include <optional>
#include <string>

#include "node.hpp"

namespace flambeau {

using torch::autograd::variable_list;

namespace {

// Compiled code runs below autograd and autocast: what they would have done is in the graphs. Grad mode is as in eager:
// kernels ask for it (oneDNN's recurrent layers keep a workspace only where a backward will come).
struct BelowAutograd {
  explicit BelowAutograd(bool grad_mode) : mode(grad_mode) {}
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::AutoGradMode mode;
};

bool is_true(PyObject* object, const char* attribute) {
  Ref flag = Ref::steal(PyObject_GetAttrString(object, attribute));
  if (!flag) {
    PyErr_Clear();
    return false;
  }
  return PyObject_IsTrue(flag.get()) == 1;
}

bool needs_grad(const JointObject* self, PyObject* const* args) {
  if (self->grad_inputs->empty() || !at::GradMode::is_enabled()) return false;
  for (int64_t index : *self->grad_inputs) {
    PyObject* value = args[index];
    if (THPVariable_Check(value) && THPVariable_Unpack(value).requires_grad()) return true;
  }
  return false;
}

Ref first_results(const JointObject* self, const Ref& values) {
  if (self->extras == 0 && PyTuple_CheckExact(values.get())) return values;
  Ref items = checked(PySequence_Fast(values.get(), "the compiled forward must return a tuple"));
  Ref results = checked(PyTuple_New(self->results));
  for (int64_t i = 0; i < self->results; ++i) {
    PyTuple_SET_ITEM(results.get(), i, Py_NewRef(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  return results;
}

void check_count(const JointObject* self, const Ref& values) {
  Py_ssize_t size = PySequence_Size(values.get());
  if (size == self->results + self->extras) return;
  if (size >= 0) {
    raise(PyExc_RuntimeError, "the compiled forward returned " + std::to_string(size) + " values, " +
                                  std::to_string(self->results + self->extras) + " are expected");
  }
  throw PythonError();
}

InputTrace trace_of(PyObject* value, bool repeats) {
  InputTrace trace{weak(at::Tensor())};
  if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    trace.is_tensor = true;
    trace.tensor = weak(tensor);
    if (!tensor.is_inference()) trace.version = static_cast<int64_t>(tensor._version());
    if (repeats) {
      at::AutoDispatchBelowADInplaceOrView below;
      trace.likeness = std::make_unique<Likeness>(
          Likeness{at::empty({0}, tensor.options()), tensor.sizes().vec(), tensor.strides().vec()});
    }
  } else if (value == Py_None) {
    trace.is_none = true;
  } else {
    trace.number = to_number(value);
  }
  return trace;
}

// A result that is one of the inputs, or another result, gets an identity of its own before it gets a history.
at::Tensor own_identity(const at::Tensor& tensor, PyObject* const* args, size_t count, const Ref& results,
                        int64_t before) {
  // Most results are new: without any state of autograd's, which is quickly seen.
  bool shared = tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr &&
                (tensor.grad_fn() != nullptr || tensor.requires_grad());
  for (size_t i = 0; i < count && !shared; ++i) {
    shared = THPVariable_Check(args[i]) && THPVariable_Unpack(args[i]).is_same(tensor);
  }
  for (int64_t i = 0; i < before && !shared; ++i) {
    PyObject* other = PyTuple_GET_ITEM(results.get(), i);
    shared = THPVariable_Check(other) && THPVariable_Unpack(other).is_same(tensor);
  }
  if (!shared) return tensor;
  at::AutoDispatchBelowADInplaceOrView below;
  return tensor.detach();
}

// Whether the joint node, or one that stands for it, is the tensor's history.
bool is_history(const JointNode* node, const torch::autograd::Node* history) {
  if (history == node) return true;
  const auto* result = dynamic_cast<const ResultNode*>(history);
  return result != nullptr && result->is_of(node);
}

void save_values(const JointObject* self, JointNode* node, PyObject* const* args, PyObject* items, const Ref& results) {
  for (const SavedPlace& saved : *self->saved) {
    PyObject* value = nullptr;
    switch (saved.place) {
      case Place::written:
      case Place::input: value = args[saved.index]; break;
      case Place::output: value = PyTuple_GET_ITEM(results.get(), saved.index); break;
      case Place::extra: value = PySequence_Fast_GET_ITEM(items, self->results + saved.index); break;
    }
    if (!saved.is_tensor) {
      node->save(to_number(value));
      continue;
    }
    if (!THPVariable_Check(value)) {
      raise(PyExc_TypeError, std::string("the compiled forward saved a ") + Py_TYPE(value)->tp_name + " as a tensor");
    }
    const at::Tensor& tensor = THPVariable_Unpack(value);
    if (saved.shares >= 0) {
      PyObject* other = PyTuple_GET_ITEM(results.get(), saved.shares);
      if (THPVariable_Check(other) && !THPVariable_Unpack(other).is_same(tensor)) {
        torch::autograd::impl::set_version_counter(tensor,
                                                   torch::autograd::impl::version_counter(THPVariable_Unpack(other)));
      }
    }
    const bool is_output = saved.place != Place::input && is_history(node, tensor.grad_fn().get());
    node->save(tensor, is_output, saved.checked);
  }
}

// Notes on the exception that is set that a hook of the program raised it, and no operation of the graph: nobody
// answers it by running the graph again (see `PyJointFunction`).
void note_hook() {
  Ref error = take_error();
  checked(PyObject_SetAttrString(error.get(), "raised_in_hook", Py_True));
  put_back_error(std::move(error));
}

// Its version now, after the writes of the graph itself.
void watch_values(const JointObject* self, JointNode* node, PyObject* const* args, const Ref& results) {
  for (const WatchedPlace& watched : *self->watched) {
    PyObject* value =
        watched.place == Place::output ? PyTuple_GET_ITEM(results.get(), watched.index) : args[watched.index];
    if (!THPVariable_Check(value)) raise(PyExc_TypeError, "a number was given where a tensor is saved");
    const at::Tensor& tensor = THPVariable_Unpack(value);
    // An inference tensor cannot be written before the backward; a counter of its own never changes.
    const bool counted = !tensor.is_inference();
    c10::VariableVersion version = counted ? torch::autograd::impl::version_counter(tensor) : c10::VariableVersion(0);
    const uint32_t expected = version.current_version() + (counted && watched.place == Place::written ? 1 : 0);
    const bool kept = watched.kept && tensor.grad_fn() != nullptr;
    node->watch({std::move(version), expected, weak(kept ? tensor : at::Tensor())});
  }
}

// Where the gradients go. Taken before the forward runs: a view that it writes to gets another history, that of its
// base.
torch::autograd::edge_list gradient_edges(const JointObject* self, PyObject* const* args) {
  torch::autograd::edge_list edges;
  edges.reserve(self->grad_inputs->size());
  for (int64_t index : *self->grad_inputs) {
    if (!THPVariable_Check(args[index])) raise(PyExc_TypeError, "a number was given where a tensor is differentiated");
    edges.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(args[index])));
  }
  return edges;
}

// Give each of the differentiable results a history of its own, which leads to its inputs alone.
void lead_apart(const JointObject* self, const NodePtr& owner, const std::vector<at::Tensor>& tensors,
                const torch::autograd::edge_list& edges) {
  torch::autograd::edge_list to(tensors.size());
  for (const Front& front : *self->fronts) {
    auto [made, front_owner] = make_node<FrontNode>(owner, front);
    torch::autograd::edge_list led;
    for (int64_t input : front.inputs) led.push_back(edges[input]);
    made->set_next_edges(std::move(led));
    for (int64_t place : front.places) to[place] = {front_owner, made->add_input_metadata(tensors[place])};
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto [made, result_owner] = make_node<ResultNode>(owner, i);
    made->add_next_edge(std::move(to[i]));
    torch::autograd::impl::set_gradient_edge(tensors[i], {result_owner, made->add_input_metadata(tensors[i])});
    announce_node(result_owner, 0);
  }
}

Ref differentiable_call(JointObject* self, PyObject* const* args, size_t count, const Ref& values,
                        torch::autograd::edge_list&& edges) {
  Ref items = checked(PySequence_Fast(values.get(), "the compiled forward must return a tuple"));
  auto [node, owner] = make_node<JointNode>(self);
  Ref results = checked(PyTuple_New(self->results));
  for (int64_t i = 0; i < self->results; ++i) {
    PyTuple_SET_ITEM(results.get(), i, Py_NewRef(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  // One front may lead to fewer inputs: to none, where eager comes to none from the results.
  const bool apart = self->fronts->size() != 1 || self->fronts->front().inputs.size() != self->grad_inputs->size();
  std::vector<at::Tensor> tensors;
  for (int64_t place : *self->differentiable) {
    PyObject* value = PyTuple_GET_ITEM(results.get(), place);
    if (!THPVariable_Check(value)) {
      raise(PyExc_TypeError, std::string("result ") + std::to_string(place) + " of the compiled forward is a " +
                                 Py_TYPE(value)->tp_name + ", not a tensor");
    }
    at::Tensor tensor = own_identity(THPVariable_Unpack(value), args, count, results, place);
    const uint32_t number = node->add_input_metadata(tensor);
    if (!apart) torch::autograd::impl::set_gradient_edge(tensor, {owner, number});
    if (!tensor.is_same(THPVariable_Unpack(value))) {
      PyObject* replaced = THPVariable_Wrap(tensor);
      if (replaced == nullptr) throw PythonError();
      PyTuple_SET_ITEM(results.get(), place, replaced);
      Py_DECREF(value);
    }
    if (apart) tensors.push_back(std::move(tensor));
  }
  if (apart) {
    lead_apart(self, owner, tensors, edges);
  } else {
    node->set_next_edges(std::move(edges));
  }
  node->expect(count, self->saved->size(), self->watched->size());
  for (size_t i = 0; i < count; ++i) node->remember(trace_of(args[i], self->repeats));
  try {
    save_values(self, node, args, items.get(), results);
  } catch (const python_error&) {
    note_hook();
    throw PythonError();
  }
  watch_values(self, node, args, results);
  if (!apart) announce_node(owner, 0);
  return results;
}

PyObject* joint_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  auto* self = reinterpret_cast<JointObject*>(object);
  return boundary(
      [&]() -> PyObject* {
        if (names != nullptr && PyTuple_GET_SIZE(names) != 0) raise(PyExc_TypeError, "keyword arguments are not taken");
        const size_t count = PyVectorcall_NARGS(flags);
        if (count < self->least_inputs) raise(PyExc_TypeError, "too few inputs for a compiled graph");
        for (int64_t index : *self->bumped) {
          if (!THPVariable_Check(args[index])) raise(PyExc_TypeError, "a number was given where a tensor is written");
        }
        const bool differentiable = self->backward != Py_None && needs_grad(self, args);
        std::optional<at::RecordFunction> range;
        if (differentiable && at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value()) {
          range.emplace(at::RecordScope::FUNCTION);
          if (range->isActive()) range->before("CompiledFunction");
        }
        torch::autograd::edge_list edges;
        if (differentiable) edges = gradient_edges(self, args);
        Ref values = call_compiled(self->forward, self->forward_boxed, args, count, differentiable);
        check_count(self, values);
        for (int64_t index : *self->bumped) {
          const at::Tensor& tensor = THPVariable_Unpack(args[index]);
          if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
        }
        if (!differentiable) return first_results(self, values).release();
        return differentiable_call(self, args, count, values, std::move(edges)).release();
      },
      nullptr);
}

Place place_of(PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) throw PythonError();
  const std::string kind(text);
  if (kind == "input") return Place::input;
  if (kind == "output") return Place::output;
  if (kind == "extra") return Place::extra;
  if (kind == "written") return Place::written;
  raise(PyExc_ValueError, "unknown place of a saved value: " + kind);
}

int64_t integer(PyObject* object) {
  int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

std::vector<SavedPlace> saved_places(PyObject* sequence) {
  Ref items = checked(PySequence_Fast(sequence, "saved must be a tuple"));
  std::vector<SavedPlace> places;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject *kind, *index, *shares;
    int is_tensor, checked_;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items.get(), i), "OOpOp", &kind, &index, &is_tensor, &shares,
                          &checked_)) {
      throw PythonError();
    }
    places.push_back({place_of(kind), integer(index), is_tensor != 0, integer(shares), checked_ != 0});
  }
  return places;
}

std::vector<WatchedPlace> watched_places(PyObject* sequence) {
  Ref items = checked(PySequence_Fast(sequence, "watched must be a tuple"));
  std::vector<WatchedPlace> places;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject *kind, *index, *reached;
    int kept;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items.get(), i), "OOOp", &kind, &index, &reached, &kept))
      throw PythonError();
    places.push_back({place_of(kind), integer(index), kept != 0, integers(reached)});
  }
  return places;
}

std::vector<std::vector<int64_t>> rows_of_integers(PyObject* sequence) {
  Ref items = checked(PySequence_Fast(sequence, "a tuple of tuples is expected"));
  std::vector<std::vector<int64_t>> rows;
  rows.reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    rows.push_back(integers(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  return rows;
}

void refer(JointObject* self, int64_t input) {
  if (input < 0) raise(PyExc_ValueError, "the index of an input is negative");
  self->least_inputs = std::max(self->least_inputs, static_cast<size_t>(input) + 1);
}

void refer_differentiable(const JointObject* self, const std::vector<int64_t>& places) {
  for (int64_t place : places) {
    if (place < 0 || static_cast<size_t>(place) >= self->differentiable->size()) {
      raise(PyExc_ValueError, "a gradient is decided by a result that does not exist");
    }
  }
}

// Groups `count` places by the rows of `led` that they are in.
std::vector<Front> fronts_of(const std::vector<std::vector<int64_t>>& led, size_t count) {
  std::vector<std::vector<int64_t>> inputs(count);
  for (size_t row = 0; row < led.size(); ++row) {
    for (int64_t place : led[row]) inputs[place].push_back(static_cast<int64_t>(row));
  }
  std::vector<Front> fronts;
  for (size_t place = 0; place < count; ++place) {
    auto known =
        std::find_if(fronts.begin(), fronts.end(), [&](const Front& front) { return front.inputs == inputs[place]; });
    if (known == fronts.end()) known = fronts.insert(known, Front{{}, inputs[place]});
    known->places.push_back(static_cast<int64_t>(place));
  }
  return fronts;
}

PyObject* joint_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return boundary(
      [&]() -> PyObject* {
        PyObject *forward, *backward, *differentiable, *orders, *grad_inputs, *reached_by, *led_by, *saved, *watched,
            *frees, *bumped, *twice;
        PyObject* flagged;
        long long results, extras;
        static const char* names[] = {
            "forward", "backward", "results", "extras", "differentiable", "tangent_orders", "grad_inputs", "reached_by",
            "led_by",  "saved",    "watched", "frees",  "bumped",         "double",         "flagged",     nullptr};
        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOLLOOOOOOOOOOO", const_cast<char**>(names), &forward,
                                         &backward, &results, &extras, &differentiable, &orders, &grad_inputs,
                                         &reached_by, &led_by, &saved, &watched, &frees, &bumped, &twice, &flagged)) {
          throw PythonError();
        }
        Ref made = checked(type->tp_alloc(type, 0));
        auto* self = reinterpret_cast<JointObject*>(made.get());
        self->vectorcall = joint_call;
        self->forward = Py_NewRef(forward);
        self->backward = Py_NewRef(backward);
        self->twice = Py_NewRef(twice);
        self->take = PyObject_GetAttrString(backward, "take");
        if (self->take == nullptr) PyErr_Clear();
        self->rescue = PyObject_GetAttrString(twice, "rescue");
        if (self->rescue == nullptr) PyErr_Clear();
        if (self->rescue == Py_None) Py_CLEAR(self->rescue);
        self->relaid = PyObject_GetAttrString(twice, "relaid");
        if (self->relaid == nullptr) PyErr_Clear();
        if (self->relaid == Py_None) Py_CLEAR(self->relaid);
        self->changing = self->relaid != nullptr && is_true(self->relaid, "changing");
        self->hands_on = self->relaid != nullptr && is_true(self->relaid, "hands_on");
        self->forward_boxed = is_true(forward, "_boxed_call");
        self->backward_boxed = is_true(backward, "_boxed_call");
        self->results = results;
        self->extras = extras;
        self->unmoved = new std::vector<std::vector<int64_t>>();
        self->differentiable = new std::vector<int64_t>(integers(differentiable));
        self->grad_inputs = new std::vector<int64_t>(integers(grad_inputs));
        self->bumped = new std::vector<int64_t>(integers(bumped));
        self->saved = new std::vector<SavedPlace>(saved_places(saved));
        self->watched = new std::vector<WatchedPlace>(watched_places(watched));
        self->frees = new std::vector<std::vector<int64_t>>(rows_of_integers(frees));
        self->tangent_orders = new std::vector<std::vector<int64_t>>(rows_of_integers(orders));
        self->reached_by = new std::vector<std::vector<int64_t>>(rows_of_integers(reached_by));
        self->flagged = new std::vector<std::vector<int64_t>>(rows_of_integers(flagged));
        self->flags = new std::vector<std::array<at::Tensor, 2>>(self->flagged->size());
        for (int64_t index : *self->grad_inputs) refer(self, index);
        for (int64_t index : *self->bumped) refer(self, index);
        for (const SavedPlace& place : *self->saved) {
          if (place.place == Place::input) refer(self, place.index);
          if (place.place == Place::written) raise(PyExc_ValueError, "a saved value is an input, a result or an extra");
          const int64_t limit = place.place == Place::output ? self->results : self->extras;
          if (place.place != Place::input && (place.index < 0 || place.index >= limit)) {
            raise(PyExc_ValueError, "a saved value is not among the results");
          }
          if (place.shares >= self->results) raise(PyExc_ValueError, "a saved value shares memory with no result");
        }
        for (int64_t index : *self->differentiable) {
          if (index < 0 || index >= self->results) raise(PyExc_ValueError, "a differentiable result does not exist");
        }
        for (const WatchedPlace& place : *self->watched) {
          if (place.place == Place::input || place.place == Place::written) refer(self, place.index);
          if (place.place == Place::extra ||
              (place.place == Place::output && (place.index < 0 || place.index >= self->results))) {
            raise(PyExc_ValueError, "a watched value is neither an input nor a result");
          }
          refer_differentiable(self, place.reached);
        }
        if (self->reached_by->size() != self->grad_inputs->size()) {
          raise(PyExc_ValueError, "what decides each gradient is not known");
        }
        for (const auto& places : *self->reached_by) refer_differentiable(self, places);
        for (const auto& places : *self->flagged) {
          refer_differentiable(self, places);
          if (places.empty()) raise(PyExc_ValueError, "a flag is of no result");
        }
        for (const auto& places : *self->frees) refer_differentiable(self, places);
        if (self->frees->size() != self->differentiable->size())
          raise(PyExc_ValueError, "what each backward frees is not known");
        const auto led = rows_of_integers(led_by);
        if (led.size() != self->grad_inputs->size()) raise(PyExc_ValueError, "what leads to each input is not known");
        for (const auto& places : led) refer_differentiable(self, places);
        self->fronts = new std::vector<Front>(fronts_of(led, self->differentiable->size()));
        self->repeats =
            std::any_of(self->frees->begin(), self->frees->end(), [](const auto& places) { return places.empty(); }) &&
            std::any_of(self->saved->begin(), self->saved->end(),
                        [](const SavedPlace& place) { return place.is_tensor; });
        if (self->tangent_orders->size() != self->differentiable->size()) {
          raise(PyExc_ValueError, "one tangent order is needed for each differentiable result");
        }
        return made.release();
      },
      nullptr);
}

int joint_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<JointObject*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->forward);
  Py_VISIT(self->backward);
  Py_VISIT(self->take);
  Py_VISIT(self->twice);
  Py_VISIT(self->rescue);
  Py_VISIT(self->relaid);
  return 0;
}

int joint_clear(PyObject* object) {
  auto* self = reinterpret_cast<JointObject*>(object);
  Py_CLEAR(self->forward);
  Py_CLEAR(self->backward);
  Py_CLEAR(self->take);
  Py_CLEAR(self->twice);
  Py_CLEAR(self->rescue);
  Py_CLEAR(self->relaid);
  return 0;
}

void joint_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<JointObject*>(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  joint_clear(object);
  delete self->unmoved;
  delete self->differentiable;
  delete self->tangent_orders;
  delete self->grad_inputs;
  delete self->reached_by;
  delete self->saved;
  delete self->watched;
  delete self->frees;
  delete self->fronts;
  delete self->bumped;
  delete self->flagged;
  delete self->flags;
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef joint_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(JointObject, vectorcall), READONLY, nullptr},
    {"forward", T_OBJECT_EX, offsetof(JointObject, forward), READONLY, nullptr},
    {"backward", T_OBJECT_EX, offsetof(JointObject, backward), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot joint_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(joint_new)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(joint_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(joint_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(joint_dealloc)},
    {Py_tp_members, joint_members},
    {Py_tp_doc, const_cast<char*>("A compiled forward and backward as one differentiable call.")},
    {0, nullptr},
};

PyType_Spec joint_spec = {
    "flambeau_autograd._C.JointFunction",
    sizeof(JointObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    joint_slots,
};

}  // namespace

const at::Tensor& flag_of(const JointObject* self, size_t row, bool given, const at::Device& device) {
  at::Tensor& flag = (*self->flags)[row][given ? 1 : 0];
  if (!flag.defined() || flag.device() != device) {
    c10::InferenceMode ordinary(false);
    BelowAutograd below(false);
    flag = at::scalar_tensor(given, at::TensorOptions().dtype(at::kBool)).to(device);
  }
  return flag;
}

Ref call_compiled(PyObject* function, bool boxed, PyObject* const* args, size_t count, bool grad_mode) {
  BelowAutograd below(grad_mode);
  if (!boxed) return checked(PyObject_Vectorcall(function, args, count, nullptr));
  Ref list = checked(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  return checked(PyObject_CallOneArg(function, list.get()));
}

Ref call_taking(PyObject* take, PyObject* list) {
  BelowAutograd below(false);
  return checked(PyObject_CallOneArg(take, list));
}

std::vector<int64_t> integers(PyObject* sequence) {
  Ref items = checked(PySequence_Fast(sequence, "a tuple of integers is expected"));
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    values.push_back(integer(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  return values;
}

PyTypeObject* make_joint_type(PyObject* module) {
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &joint_spec, nullptr));
}

}  // namespace flambeau
