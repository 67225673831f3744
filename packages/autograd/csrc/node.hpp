// The autograd node behind the results of a joint function.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "joint.hpp"

namespace flambeau {

using Number = std::variant<bool, int64_t, double>;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

inline WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

// An empty tensor of a tensor's type and device, and its layout.
struct Likeness {
  at::Tensor like;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// What a backward of the backward needs to know of one input of the forward, without keeping it alive. Every call makes one for each input.
struct InputTrace {
  WeakTensor tensor;
  int64_t version = 0;
  Number number = false;
  bool is_tensor = false;
  bool is_none = false;
  std::unique_ptr<Likeness> likeness{};  // for a graph that `repeats`
};

// A value whose writes are counted: see `WatchedPlace`.
struct Watch {
  c10::VariableVersion version;
  uint32_t expected;
  WeakTensor kept;  // null unless the tensor must not be detached
};

// Whether a node of eager's raises as soon as the engine comes to it: the op has no derivative.
bool has_no_derivative(const torch::autograd::Node& node);

// Stands before such a node: eager comes there only from the results that the input decides, the engine from all results of a node.
class Gate : public torch::autograd::Node {
 public:
  explicit Gate(NodePtr behind) : behind_(std::move(behind)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "FlambeauGate"; }

 private:
  NodePtr behind_;
};

class JointNode : public torch::autograd::Node {
 public:
  // Shares ownership of the joint function. The GIL is held.
  explicit JointNode(JointObject* joint);
  ~JointNode() override;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  // When the backward is over: the engine need not come again to an input that no further backward can lead to. Nodes behind it may raise.
  void let_go();
  std::string name() const override { return "FlambeauBackward"; }

  // An inference tensor has no version to check, and autograd keeps none: its contents are kept. What is saved is the partition's
  // choice, eager may need something else.
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
  // Some input has a history.
  void reach_deeper() { deep_ = true; }
  void remember(InputTrace trace) { inputs_.push_back(std::move(trace)); }

 private:
  void settle(torch::autograd::variable_list& grads) const;
  // The places that are freed when a backward with these gradients is done, and whether that leaves nothing to free.
  std::vector<bool> freed_after(const std::vector<bool>& given) const;
  bool is_all(const std::vector<bool>& freed) const;
  void check_watched(const std::vector<bool>& given) const;
  torch::autograd::variable_list run(torch::autograd::variable_list& grads, const std::vector<bool>& given);
  torch::autograd::variable_list run_twice(const torch::autograd::variable_list& grads);
  torch::autograd::variable_list run_again(const torch::autograd::variable_list& grads);
  void drop_undecided(torch::autograd::variable_list& found, const std::vector<bool>& given) const;
  torch::autograd::variable_list gradients(const Ref& found) const;

  JointObject* joint_;
  c10::SmallVector<torch::autograd::SavedVariable, 2> tensors_;
  std::vector<Watch> watched_;
  std::vector<Number> numbers_;
  c10::SmallVector<InputTrace, 4> inputs_;
  bool deep_ = false;
  std::vector<bool> ending_;  // the places in differentiable through which a backward comes that keeps no graph, until it lets go
  std::vector<bool> freed_;   // those through which none can come any more
  bool spent_ = false;        // so all that eager would have saved is freed, and what was saved is gone
};

Number to_number(PyObject* object);
PyObject* from_number(const Number& number);

}  // namespace flambeau
