#include "node.hpp"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string>

#include "batched.hpp"

namespace flambeau {

using torch::autograd::variable_list;

namespace {

// Python errors cross the autograd engine as torch's own python_error.
[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw std::move(error);
}

// Messages are joined here, not by TORCH_CHECK: it would use a stream, and one of this module crashes in torch's
// process where the compiler links parts of the C++ library statically.
std::string overwritten(const std::string& what, int64_t index, int64_t version, int64_t expected) {
  return "one of the variables needed for gradient computation has been modified by an inplace operation: " + what +
         " " + std::to_string(index) + " of a compiled graph is at version " + std::to_string(version) +
         "; expected version " + std::to_string(expected) + " instead.";
}

constexpr const char* detached =
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use out-of-place "
    "`.detach()` instead";

// Of the gradients that came in, which are there: eager gives none to an input that only decides others.
Flags given_of(const variable_list& grads) {
  Flags given(grads.size());
  for (size_t i = 0; i < grads.size(); ++i) given[i] = grads[i].defined();
  return given;
}

bool any_given(const std::vector<int64_t>& places, const Flags& given) {
  return std::any_of(places.begin(), places.end(), [&](int64_t place) { return given[place]; });
}

bool is_nothing(const variable_list& grads) {
  return std::none_of(grads.begin(), grads.end(), [](const at::Tensor& grad) { return grad.defined(); });
}

PyObject* wrapped(const at::Tensor& tensor) {
  PyObject* value = tensor.defined() ? THPVariable_Wrap(tensor) : Py_NewRef(Py_None);
  if (value == nullptr) throw PythonError();
  return value;
}

Ref tuple_of(const variable_list& tensors) {
  Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i) PyTuple_SET_ITEM(items.get(), i, wrapped(tensors[i]));
  return items;
}

Ref tuple_of(const std::vector<int64_t>& numbers) {
  Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; i < numbers.size(); ++i)
    PyTuple_SET_ITEM(items.get(), i, checked(PyLong_FromLongLong(numbers[i])).release());
  return items;
}

// Marked as conjugate or negative: its memory shows other numbers.
bool is_lazy(const at::Tensor& grad) { return grad.is_conj() || grad.is_neg(); }

at::Tensor in_order(const at::Tensor& grad, const std::vector<int64_t>& order) {
  if (is_lazy(grad)) return in_order(grad.resolve_conj().resolve_neg(), order);
  bool natural = true;
  for (size_t i = 0; i < order.size(); ++i) natural = natural && order[i] == static_cast<int64_t>(i);
  if (natural) return grad.is_contiguous() ? grad : grad.contiguous();
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  at::Tensor turned = grad.permute(order);
  return turned.is_contiguous() ? grad : turned.contiguous().permute(inverse);
}

// The tensor itself; an undefined one where it is gone.
at::Tensor locked(const WeakTensor& tensor) {
  auto alive = tensor.lock();
  return alive.defined() ? at::Tensor::wrap_tensor_impl(std::move(alive)) : at::Tensor();
}

// Zeros in the place of an input, with its history alone.
at::Tensor with_history(const torch::autograd::Edge& edge) {
  at::Tensor zeros;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    zeros = edge.function->input_metadata(edge.input_nr).zeros_like();
  }
  torch::autograd::impl::set_gradient_edge(zeros, edge);
  return zeros;
}

// Of an absent gradient: a tensor has no negative strides.
const std::vector<int64_t>& no_strides() {
  static const std::vector<int64_t> none{-1};
  return none;
}

bool lie_so(const variable_list& tensors, const std::vector<std::vector<int64_t>>& strides) {
  const auto lies = [](const at::Tensor& tensor, const std::vector<int64_t>& known) {
    return tensor.defined() ? tensor.strides() == at::IntArrayRef(known) : known == no_strides();
  };
  return tensors.size() == strides.size() && std::equal(tensors.begin(), tensors.end(), strides.begin(), lies);
}

}  // namespace

Number to_number(PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  Ref index = checked(PyNumber_Index(object));
  int64_t value = PyLong_AsLongLong(index.get());
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

PyObject* from_number(const Number& number) {
  if (const bool* flag = std::get_if<bool>(&number)) return PyBool_FromLong(*flag);
  if (const int64_t* value = std::get_if<int64_t>(&number)) return PyLong_FromLongLong(*value);
  return PyFloat_FromDouble(std::get<double>(number));
}

JointNode::JointNode(JointObject* joint) : joint_(joint) { Py_INCREF(joint_); }

// NOLINTNEXTLINE(bugprone-exception-escape): taking the GIL throws only where the interpreter is broken
JointNode::~JointNode() {
  if (Py_IsInitialized()) {
    pybind11::gil_scoped_acquire gil;
    Py_DECREF(joint_);
  }
}

void JointNode::release_variables() {
  std::scoped_lock lock(mutex_);
  // The engine comes here without gradients too, on its way from results that have nothing to do with these.
  if (ending_.empty()) return;
  freed_ = freed_after(ending_);
  ending_.clear();
  if (!is_all(freed_)) return;
  for (auto& saved : tensors_) saved.reset_data();
  watched_.clear();
  spent_ = true;
}

Flags JointNode::freed_after(const Flags& given) const {
  Flags freed = freed_.empty() ? Flags(joint_->frees->size()) : freed_;
  for (size_t i = 0; i < given.size(); ++i) {
    for (int64_t place : (*joint_->frees)[i]) freed[place] = freed[place] || given[i];
  }
  return freed;
}

bool JointNode::is_all(const Flags& freed) const {
  for (size_t i = 0; i < freed.size(); ++i) {
    if (!freed[i] && !(*joint_->frees)[i].empty()) return false;
  }
  return true;
}

// Absent gradients become zeros; the others get the layout that the backward was compiled for.
variable_list JointNode::settle(variable_list& grads, const Flags& given) {
  variable_list came;
  bool asked = joint_->relaid == nullptr;
  if (!asked && is_handed_on(grads, given)) {
    came = grads;
    asked = true;
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) grads[i] = input_metadata(i).zeros_like();
    at::Tensor laid = in_order(grads[i], (*joint_->tangent_orders)[i]);
    if (laid.is_same(grads[i])) continue;
    if (!asked && is_looked_at()) {
      came = grads;
      for (size_t j = 0; j < given.size(); ++j) {
        if (!given[j]) came[j] = at::Tensor();
      }
    }
    asked = true;
    grads[i] = std::move(laid);
  }
  return came;
}

// Whether a gradient may be a tangent, or a view of one, that the compiled backward makes a copy of, and `.grad` of a
// leaf may become it: one that is lazily conjugated, or one to which nothing is added in this call.
bool JointNode::is_handed_on(const variable_list& grads, const Flags& given) {
  bool changed = joint_->hands_on && std::find(given.begin(), given.end(), false) != given.end();
  for (const at::Tensor& grad : grads) changed = changed || (grad.defined() && is_lazy(grad));
  if (!changed) return false;
  for (const torch::autograd::Edge& edge : edges()) {
    if (edge.is_valid() && edge.function->num_outputs() == 0) return true;
  }
  return is_looked_at();
}

bool JointNode::is_looked_at() {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  for (const torch::autograd::Edge& edge : edges()) {
    if (!edge.is_valid()) continue;
    torch::autograd::Node& next = *edge.function;
    if (!next.pre_hooks().empty() || !next.tensor_pre_hooks().empty() || !next.post_hooks().empty()) return true;
    if (!next.retains_grad_hooks().empty()) return true;
    if (wanted == nullptr || wanted->empty()) continue;
    const auto known = wanted->find(&next);
    if (known == wanted->end() || !known->second.should_execute()) continue;
    // What is added to `.grad` of a leaf that was named to `backward`; any other that was named lies behind this node.
    if (known->second.captures_ != nullptr || next.num_outputs() != 0) return true;
  }
  return false;
}

void JointNode::drop_undecided(variable_list& found, const Flags& given) const {
  for (size_t i = 0; i < found.size(); ++i) {
    if (!any_given((*joint_->reached_by)[i], given)) found[i] = at::Tensor();
  }
}

void JointNode::check_watched(const Flags& given) const {
  for (size_t i = 0; i < watched_.size(); ++i) {
    const auto& [version, expected, kept] = watched_[i];
    const WatchedPlace& watched = (*joint_->watched)[i];
    if (version.current_version() != expected && any_given(watched.reached, given)) {
      const char* what = watched.place == Place::output ? "result" : "input";
      TORCH_CHECK(false, overwritten(what, watched.index, version.current_version(), expected));
    }
    if (!watched.kept) continue;
    const at::Tensor alive = locked(kept);
    if (alive.defined() && alive.grad_fn() == nullptr) TORCH_CHECK(!any_given(watched.reached, given), detached);
  }
}

variable_list JointNode::gradients(const Ref& found) const {
  Ref items = Ref::steal(PySequence_Fast(found.get(), "the compiled backward must return a tuple"));
  if (!items) throw_python_error();
  const size_t wanted = joint_->grad_inputs->size();
  const auto size = static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get()));
  TORCH_CHECK(size == wanted, "the compiled backward returned " + std::to_string(size) + " gradients, " +
                                  std::to_string(wanted) + " are expected");
  variable_list grads;
  grads.reserve(wanted);
  for (size_t i = 0; i < wanted; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (item == Py_None) {
      grads.emplace_back();
      continue;
    }
    TORCH_CHECK_TYPE(THPVariable_Check(item),
                     std::string("the compiled backward returned a ") + Py_TYPE(item)->tp_name);
    grads.push_back(THPVariable_Unpack(item));
  }
  return grads;
}

variable_list JointNode::apply(variable_list&& grads) {
  std::scoped_lock lock(mutex_);
  if (is_nothing(grads)) return variable_list(joint_->grad_inputs->size());
  const Flags given = given_of(grads);
  return differentiate(std::move(grads), given);
}

std::vector<JointNode::Pending>::iterator JointNode::pending() {
  const int run = torch::autograd::get_current_graph_task_id();
  return std::find_if(pending_.begin(), pending_.end(), [run](const Pending& pending) { return pending.run == run; });
}

void JointNode::deposit(size_t place, at::Tensor&& grad) {
  std::scoped_lock lock(mutex_);
  auto entry = pending();
  if (entry == pending_.end())
    entry = pending_.insert(entry, {torch::autograd::get_current_graph_task_id(), {}, {}, {}});
  entry->grads.resize(joint_->differentiable->size());
  entry->came.resize(joint_->differentiable->size());
  entry->grads[place] = std::move(grad);
  entry->came[place] = true;
}

variable_list JointNode::collect(const std::vector<int64_t>& inputs) {
  std::scoped_lock lock(mutex_);
  variable_list collected(inputs.size());
  const auto entry = this->pending();
  if (entry == pending_.end()) return collected;
  Pending pending = std::move(*entry);
  pending_.erase(entry);
  if (!pending.came.empty()) {
    variable_list more = differentiate(std::move(pending.grads), pending.came);
    pending.found.resize(more.size());
    for (size_t i = 0; i < more.size(); ++i) {
      at::Tensor& found = pending.found[i];
      found = found.defined() && more[i].defined() ? found + more[i] : more[i].defined() ? more[i] : found;
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) collected[i] = std::move(pending.found[inputs[i]]);
  if (!is_nothing(pending.found)) pending_.push_back({pending.run, {}, {}, std::move(pending.found)});
  return collected;
}

variable_list JointNode::differentiate(variable_list&& grads, const Flags& came) {
  for (size_t i = 0; i < freed_.size(); ++i) TORCH_CHECK(!freed_[i] || !came[i], torch::autograd::ERR_BACKWARD_TWICE);
  const Flags given = given_of(grads);
  check_watched(given);
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    ending_.resize(came.size());
    for (size_t i = 0; i < came.size(); ++i) ending_[i] = ending_[i] || came[i];
  }
  if (is_nothing(grads)) return variable_list(joint_->grad_inputs->size());
  const bool again = spent_ && !tensors_.empty();
  const bool twice = at::GradMode::is_enabled();
  pybind11::gil_scoped_acquire gil;
  try {
    if (again) return run_again(grads);
    variable_list found = twice ? run_twice(grads) : run_all(std::move(grads), given, true);
    drop_undecided(found, given);
    return found;
  } catch (const PythonError&) {
    throw_python_error();
  }
}

variable_list JointNode::laid_out(variable_list&& found, const variable_list& came) const {
  if (!joint_->changing && lie_so(came, *joint_->unmoved)) return std::move(found);
  Ref before = tuple_of(found);
  Ref tangents = tuple_of(came);
  Ref inputs = checked(PyTuple_New(joint_->changing ? static_cast<Py_ssize_t>(inputs_.size()) : 0));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs.get()); ++i) {
    const InputTrace& trace = inputs_[i];
    PyObject* value = nullptr;
    if (trace.is_tensor) {
      value = tuple_of(trace.tensor._unsafe_get_target()->sizes().vec()).release();
    } else {
      value = trace.is_none ? Py_NewRef(Py_None) : from_number(trace.number);
    }
    if (value == nullptr) throw PythonError();
    PyTuple_SET_ITEM(inputs.get(), i, value);
  }
  Ref laid = checked(PyObject_CallFunctionObjArgs(joint_->relaid, before.get(), tangents.get(), inputs.get(), nullptr));
  if (laid.get() != Py_None) return gradients(laid);
  joint_->unmoved->clear();
  for (const at::Tensor& tangent : came)
    joint_->unmoved->push_back(tangent.defined() ? tangent.strides().vec() : no_strides());
  return std::move(found);
}

variable_list JointNode::run_all(variable_list&& grads, const Flags& given, bool may_free) {
  const Batch batch = batch_of(grads);
  if (batch.size < 0) {
    const variable_list came = settle(grads, given);
    variable_list found = run(grads, given, may_free);
    return came.empty() ? found : laid_out(std::move(found), came);
  }
  const int64_t samples = std::max<int64_t>(batch.size, 1);
  std::vector<variable_list> found(joint_->grad_inputs->size());
  for (int64_t place = 0; place < samples; ++place) {
    variable_list sample;
    for (const at::Tensor& grad : grads) sample.push_back(sample_of(grad, batch, place));
    variable_list of_sample = run_all(std::move(sample), given, may_free && place + 1 == samples);
    for (size_t i = 0; i < found.size(); ++i) {
      if (of_sample[i].defined()) found[i].push_back(std::move(of_sample[i]));
    }
  }
  variable_list joined(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].empty()) joined[i] = batched(found[i], batch);
  }
  return joined;
}

variable_list JointNode::run(variable_list& grads, const Flags& given, bool may_free) {
  const bool last = may_free && !torch::autograd::get_current_graph_task_keep_graph() && is_all(freed_after(ending_));
  Ref list = checked(
      PyList_New(static_cast<Py_ssize_t>(numbers_.size() + tensors_.size() + grads.size() + joint_->flagged->size())));
  Py_ssize_t place = 0;
  auto add = [&](PyObject* value) {
    if (value == nullptr) throw PythonError();
    PyList_SET_ITEM(list.get(), place++, value);
  };
  for (const auto& number : numbers_) add(from_number(number));
  for (const auto& saved : tensors_) add(THPVariable_Wrap(saved.unpack(getptr())));
  for (const auto& grad : grads) add(THPVariable_Wrap(grad));
  for (size_t row = 0; row < joint_->flagged->size(); ++row) {
    const std::vector<int64_t>& places = (*joint_->flagged)[row];
    add(THPVariable_Wrap(flag_of(joint_, row, any_given(places, given), grads[places[0]].device())));
  }
  Ref found;
  try {
    if (last && joint_->take != nullptr && !is_held(grads[0])) {
      // Nobody asks for them again: the backward may free each as soon as it was used, as eager's nodes do one after
      // the other.
      for (auto& saved : tensors_) saved.reset_data();
      grads.clear();
      found = call_taking(joint_->take, list.get());
    } else {
      std::vector<PyObject*> args{nullptr};
      for (Py_ssize_t i = 0; i < place; ++i) args.push_back(PyList_GET_ITEM(list.get(), i));
      found =
          call_compiled(joint_->backward, joint_->backward_boxed, args.data() + 1, static_cast<size_t>(place), false);
    }
  } catch (const PythonError&) {
    if (joint_->rescue == nullptr || !PyErr_ExceptionMatches(PyExc_Exception)) throw;
    return rescued(list.get(), given);
  }
  joint_->proven = true;
  return gradients(found);
}

bool JointNode::is_held(const at::Tensor& grad) const {
  return joint_->rescue != nullptr && !joint_->proven && grad.is_cpu();
}

void JointNode::add_front(const FrontNode* front) {
  std::scoped_lock lock(fronts_mutex_);
  fronts_.push_back(front);
}

void JointNode::remove_front(const FrontNode* front) {
  std::scoped_lock lock(fronts_mutex_);
  fronts_.erase(std::remove(fronts_.begin(), fronts_.end(), front), fronts_.end());
}

torch::autograd::edge_list JointNode::edges() {
  if (num_outputs() != 0) return next_edges();
  torch::autograd::edge_list edges(joint_->grad_inputs->size());
  std::scoped_lock lock(fronts_mutex_);
  for (const FrontNode* front : fronts_) {
    for (size_t i = 0; i < front->inputs().size() && i < front->num_outputs(); ++i)
      edges[front->inputs()[i]] = front->next_edge(i);
  }
  return edges;
}

// A weak reference to a tensor that is gone keeps how it lay in memory.
PyObject* JointNode::input_or_loss(size_t place, const torch::autograd::edge_list& edges) const {
  const InputTrace& trace = inputs_[place];
  std::string words;
  if (const at::Tensor tensor = locked(trace.tensor); tensor.defined()) {
    const int64_t version = tensor.is_inference() ? trace.version : static_cast<int64_t>(tensor._version());
    if (version == trace.version) return THPVariable_Wrap(tensor);
    words = overwritten("input", static_cast<int64_t>(place), version, trace.version);
  }
  const c10::TensorImpl* known = trace.tensor._unsafe_get_target();
  Ref sizes = tuple_of(known->sizes().vec());
  Ref strides = tuple_of(known->strides().vec());
  at::Tensor history;
  for (size_t i = 0; i < edges.size(); ++i) {
    if ((*joint_->grad_inputs)[i] == static_cast<int64_t>(place) && edges[i].is_valid())
      history = with_history(edges[i]);
  }
  Ref led = Ref::steal(wrapped(history));
  return Py_BuildValue("(sOOO)", words.c_str(), sizes.get(), strides.get(), led.get());
}

Ref JointNode::inputs_now() {
  const torch::autograd::edge_list edges = this->edges();
  Ref inputs = checked(PyTuple_New(static_cast<Py_ssize_t>(inputs_.size())));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputTrace& trace = inputs_[i];
    PyObject* value = nullptr;
    if (trace.is_tensor) {
      value = input_or_loss(i, edges);
    } else {
      value = trace.is_none ? Py_NewRef(Py_None) : from_number(trace.number);
    }
    if (value == nullptr) throw PythonError();
    PyTuple_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i), value);
  }
  return inputs;
}

variable_list JointNode::rescued(PyObject* args, const Flags& given) {
  Ref error = take_error();
  if (PyList_GET_SIZE(args) == 0) return gradients(checked(PyObject_CallOneArg(joint_->rescue, error.get())));
  const auto first = static_cast<Py_ssize_t>(numbers_.size() + tensors_.size());
  Ref tangents = checked(PyTuple_New(static_cast<Py_ssize_t>(given.size())));
  for (size_t i = 0; i < given.size(); ++i) {
    PyObject* tangent = given[i] ? PyList_GET_ITEM(args, first + static_cast<Py_ssize_t>(i)) : Py_None;
    PyTuple_SET_ITEM(tangents.get(), static_cast<Py_ssize_t>(i), Py_NewRef(tangent));
  }
  Ref saved = checked(PyList_GetSlice(args, 0, first));
  Ref inputs = inputs_now();
  return gradients(checked(
      PyObject_CallFunctionObjArgs(joint_->rescue, error.get(), inputs.get(), tangents.get(), saved.get(), nullptr)));
}

// Of an input that is gone or was written: nothing or the words of an error, how it lay in memory, and zeros with its
// history.
variable_list JointNode::run_twice(const variable_list& grads) {
  Ref kept = checked(PyTuple_New(static_cast<Py_ssize_t>(numbers_.size() + tensors_.size())));
  Py_ssize_t kept_place = 0;
  auto keep = [&](PyObject* value) {
    if (value == nullptr) throw PythonError();
    PyTuple_SET_ITEM(kept.get(), kept_place++, value);
  };
  for (const auto& number : numbers_) keep(from_number(number));
  for (const auto& saved : tensors_)
    keep(THPVariable_Wrap(saved.unpack(getptr())));  // the usual errors for freed or overwritten tensors
  Ref inputs = inputs_now();
  Ref tangents = tuple_of(grads);
  return gradients(
      checked(PyObject_CallFunctionObjArgs(joint_->twice, inputs.get(), tangents.get(), kept.get(), nullptr)));
}

// What was saved is gone, and eager's backward would not have needed it: no value of an input decides these gradients.
variable_list JointNode::run_again(const variable_list& grads) {
  Ref inputs = checked(PyTuple_New(static_cast<Py_ssize_t>(inputs_.size())));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputTrace& trace = inputs_[i];
    Ref value;
    if (trace.is_tensor) {
      Ref like = Ref::steal(wrapped(trace.likeness->like));
      Ref sizes = tuple_of(trace.likeness->sizes);
      Ref strides = tuple_of(trace.likeness->strides);
      value = checked(PyTuple_Pack(3, like.get(), sizes.get(), strides.get()));
    } else {
      value = checked(trace.is_none ? Py_NewRef(Py_None) : from_number(trace.number));
    }
    PyTuple_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i), value.release());
  }
  Ref tangents = tuple_of(grads);
  Ref found = checked(PyObject_CallMethod(joint_->twice, "again", "OO", inputs.get(), tangents.get()));
  return gradients(found);
}

variable_list ResultNode::apply(variable_list&& grads) {
  static_cast<JointNode&>(*joint_).deposit(place_, std::move(grads[0]));
  return variable_list(1);
}

// What was saved is let go here and not in `release_variables`: that is called too where a front is only freed, and the
// compiled backward, which runs under the shared node's lock, may free any (Python's collector does).
variable_list FrontNode::apply(variable_list&& /*grads*/) {
  auto& joint = static_cast<JointNode&>(*joint_);
  variable_list collected = joint.collect(front_.inputs);
  if (!torch::autograd::get_current_graph_task_keep_graph()) joint.release_variables();
  return collected;
}

}  // namespace flambeau
