// The autograd node behind the results of a joint function.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "joint.hpp"

namespace flambeau {

// One truth for each result; most functions have few, which cost no allocation.
using Flags = c10::SmallVector<bool, 8>;

using Number = std::variant<bool, int64_t, double>;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

inline WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

// An empty tensor of a tensor's type and device, and its layout.
struct Likeness {
  at::Tensor like;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// What a backward of the backward needs to know of one input of the forward, without keeping it alive. Every call makes
// one for each input.
struct InputTrace {
  WeakTensor tensor;
  int64_t version = 0;
  Number number = false;
  bool is_tensor = false;
  bool is_none = false;
  std::unique_ptr<Likeness> likeness;  // for a graph that `repeats`
};

// A value whose writes are counted: see `WatchedPlace`.
struct Watch {
  c10::VariableVersion version;
  uint32_t expected;
  WeakTensor kept;  // null unless the tensor must not be detached
};

class FrontNode;

// Runs the compiled backward. Behind all results where each leads to the same inputs; else behind none: `ResultNode`s
// and `FrontNode`s stand for it then, so that the engine comes from a result only to those inputs that it leads to, as
// in eager.
class JointNode : public torch::autograd::Node {
 public:
  // Shares ownership of the joint function. The GIL is held.
  explicit JointNode(JointObject* joint);
  ~JointNode() override;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  // The engine has come to a result, with its gradient or without.
  void deposit(size_t place, at::Tensor&& grad);
  // The gradients of these places in grad_inputs, of all that was deposited and not yet given away.
  torch::autograd::variable_list collect(const std::vector<int64_t>& inputs);
  std::string name() const override { return "CompiledFunctionBackward"; }

  // An inference tensor has no version to check, and autograd keeps none: its contents are kept. What is saved is the
  // partition's choice, eager may need something else.
  void save(const at::Tensor& tensor, bool is_output, bool checked) {
    if (tensor.is_inference()) {
      tensors_.emplace_back(tensor.clone(), is_output);
    } else {
      tensors_.emplace_back(checked ? tensor : at::Tensor(tensor.variable_data()), is_output && checked);
    }
  }
  void save(Number number) { numbers_.push_back(number); }
  // How many of each will come: one allocation each.
  void expect(size_t inputs, size_t saved, size_t watched) {
    inputs_.reserve(inputs);
    tensors_.reserve(saved);
    watched_.reserve(watched);
  }
  // One for each of the joint function's watched places, in order.
  void watch(Watch watch) { watched_.push_back(std::move(watch)); }
  void remember(InputTrace trace) { inputs_.push_back(std::move(trace)); }
  // A front that leads on in its stead, until it is freed.
  void add_front(const FrontNode* front);
  void remove_front(const FrontNode* front);

 private:
  // What came to the results in one run of the engine, and gradients that are not given away yet.
  struct Pending {
    int run;  // the engine's number of it: several threads may differentiate one graph
    torch::autograd::variable_list grads;
    Flags came;
    torch::autograd::variable_list found;
  };
  // `came`: the places in differentiable to which the engine has come.
  torch::autograd::variable_list differentiate(torch::autograd::variable_list&& grads, const Flags& came);
  // Answers with the gradients as they came, where one was laid out anew and somebody may look at what follows from it;
  // else with none.
  torch::autograd::variable_list settle(torch::autograd::variable_list& grads, const Flags& given);
  // Whether anybody sees the gradients themselves: who asked the engine for one, or a hook. `.grad` of a leaf lies as
  // the leaf does.
  bool is_looked_at();
  bool is_handed_on(const torch::autograd::variable_list& grads, const Flags& given);
  // The gradients as eager would lay them out, of tangents that came so.
  torch::autograd::variable_list laid_out(torch::autograd::variable_list&& found,
                                          const torch::autograd::variable_list& came) const;
  // The places that are freed when a backward with these gradients is done, and whether that leaves nothing to free.
  Flags freed_after(const Flags& given) const;
  bool is_all(const Flags& freed) const;
  void check_watched(const Flags& given) const;
  // One call of the compiled backward, or one for each sample of a batch; `may_free`: where the engine keeps no graph,
  // none comes after it.
  torch::autograd::variable_list run_all(torch::autograd::variable_list&& grads, const Flags& given, bool may_free);
  torch::autograd::variable_list run(torch::autograd::variable_list& grads, const Flags& given, bool may_free);
  torch::autograd::variable_list run_twice(const torch::autograd::variable_list& grads);
  // Whether the backward leaves what it is given to who repeats it: until it has passed once, where that costs none of
  // a GPU's memory.
  bool is_held(const at::Tensor& grad) const;
  // What `rescue` gives for the error that is set; `args`, a list, were given to the compiled backward, which empties
  // it before it frees them.
  torch::autograd::variable_list rescued(PyObject* args, const Flags& given);
  // The inputs of the forward, as they are now.
  Ref inputs_now();
  torch::autograd::variable_list run_again(const torch::autograd::variable_list& grads);
  // Where the gradients of these inputs go; nowhere where the front that led there is freed.
  torch::autograd::edge_list edges();
  // The input as it was. Of one that is gone or was written see `run_twice`.
  PyObject* input_or_loss(size_t place, const torch::autograd::edge_list& edges) const;
  void drop_undecided(torch::autograd::variable_list& found, const Flags& given) const;
  torch::autograd::variable_list gradients(const Ref& found) const;
  std::vector<Pending>::iterator pending();  // of the present run of the engine

  // A node of more than 1032 bytes would cost every call a search of the heap: above that glibc's allocator keeps no
  // list of free blocks.
  JointObject* joint_;
  c10::SmallVector<torch::autograd::SavedVariable, 2> tensors_;
  std::vector<Watch> watched_;
  std::vector<Number> numbers_;
  c10::SmallVector<InputTrace, 4> inputs_;
  std::vector<Pending> pending_;
  std::vector<const FrontNode*> fronts_;
  std::mutex fronts_mutex_;  // not the node's: a front may be freed while the node is at work
  Flags ending_;  // the places in differentiable through which a backward comes that keeps no graph, until it lets go
  Flags freed_;  // those through which none can come any more
  bool spent_ = false;  // so all that eager would have saved is freed, and what was saved is gone
};

// The history of one result: tells the shared node its gradient. It is made after the `FrontNode`s, and the engine runs
// what was made last first: when it comes to a front, all results that it comes to in this run have told theirs. Where
// that fails (results on several devices), the compiled backward runs once more for those that came late.
class ResultNode : public torch::autograd::Node {
 public:
  ResultNode(NodePtr joint, size_t place) : joint_(std::move(joint)), place_(place) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "CompiledFunctionBackward"; }
  bool is_of(const JointNode* joint) const { return joint_.get() == joint; }

 private:
  NodePtr joint_;
  size_t place_;
};

// Leads to the inputs of all results that lead to the same ones.
class FrontNode : public torch::autograd::Node {
 public:
  FrontNode(NodePtr joint, const Front& front) : joint_(std::move(joint)), front_(front) { shared().add_front(this); }
  ~FrontNode() override { shared().remove_front(this); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "FlambeauFront"; }
  // Places in grad_inputs, one for each edge.
  const std::vector<int64_t>& inputs() const { return front_.inputs; }

 private:
  JointNode& shared() const { return static_cast<JointNode&>(*joint_); }
  NodePtr joint_;
  const Front& front_;  // the joint function's, which the shared node keeps alive
};

Number to_number(PyObject* object);
PyObject* from_number(const Number& number);

}  // namespace flambeau
