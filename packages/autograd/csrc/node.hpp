// The autograd node behind the results of a joint function.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "joint.hpp"

namespace flambeau {

using Number = std::variant<bool, int64_t, double>;

// What a backward of the backward needs to know of one input of the forward, without keeping it alive.
struct InputTrace {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
  int64_t version = 0;
  Number number = false;
  bool is_tensor = false;
  bool is_none = false;
};

class JointNode : public torch::autograd::Node {
 public:
  // Shares ownership of the joint function. The GIL is held.
  explicit JointNode(JointObject* joint);
  ~JointNode() override;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return "FlambeauBackward"; }

  // An inference tensor has no version to check, and autograd keeps none: its contents are kept. What is saved is the partition's
  // choice, eager may need something else.
  void save(const at::Tensor& tensor, bool is_output) {
    tensors_.emplace_back(tensor.is_inference() ? tensor.clone() : tensor, is_output);
  }
  void save(Number number) { numbers_.push_back(number); }
  // How many of each will come: one allocation each.
  void expect(size_t inputs, size_t saved, size_t watched) {
    inputs_.reserve(inputs);
    tensors_.reserve(saved);
    watched_.reserve(watched);
  }
  // One for each of the joint function's watched places, in order.
  void watch(const c10::VariableVersion& version) { watched_.emplace_back(version, version.current_version()); }
  void remember(InputTrace trace) { inputs_.push_back(std::move(trace)); }

 private:
  // Of the gradients that came in, which are there: eager gives none to an input that only decides others. Empty: all are.
  std::vector<bool> settle(torch::autograd::variable_list& grads) const;
  void check_watched(const std::vector<bool>& given) const;
  torch::autograd::variable_list run(torch::autograd::variable_list& grads);
  torch::autograd::variable_list run_twice(const torch::autograd::variable_list& grads);
  void drop_undecided(torch::autograd::variable_list& found, const std::vector<bool>& given) const;
  torch::autograd::variable_list gradients(const Ref& found) const;

  JointObject* joint_;
  std::vector<torch::autograd::SavedVariable> tensors_;
  std::vector<std::pair<c10::VariableVersion, uint32_t>> watched_;
  std::vector<Number> numbers_;
  std::vector<InputTrace> inputs_;
};

Number to_number(PyObject* object);
PyObject* from_number(const Number& number);

}  // namespace flambeau
