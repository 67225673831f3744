// The registers of one run. Inputs and constants are borrowed (the caller and the executor own them): no reference
// counts.
#pragma once

#include <c10/util/SmallVector.h>

#include "arguments.hpp"
#include "devices.hpp"
#include "program.hpp"

namespace flambeau {

class Frame {
 public:
  explicit Frame(const Program& program) : Frame(program, Devices(program.devices)) {}
  // A nested program runs on the devices of the outer one.
  Frame(const Program& program, const Devices& outer, bool profiled = false)
      : devices(outer),
        is_profiled(profiled),
        tensors_(program.tensor_registers),
        borrowed_(program.tensor_registers, 0),
        scalars_(program.scalar_registers) {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() {
    for (size_t i = 0; i < tensors_.size(); ++i) give_back(i);
  }

  const at::Tensor& tensor(int32_t reg) const { return tensors_[static_cast<size_t>(reg)]; }
  const Value& scalar(int32_t reg) const { return scalars_[static_cast<size_t>(reg)]; }
  int64_t integer(const Operand& operand) const {
    return operand.reg < 0 ? operand.literal.as_int() : scalar(operand.reg).as_int();
  }
  Value operand(const Operand& operand) const { return operand.reg < 0 ? operand.literal : scalar(operand.reg); }

  void set(int32_t reg, at::Tensor&& tensor) {
    give_back(static_cast<size_t>(reg));
    tensors_[static_cast<size_t>(reg)] = std::move(tensor);
  }
  void set(int32_t reg, const Value& value) { scalars_[static_cast<size_t>(reg)] = value; }
  // `tensor` must outlive the frame.
  void borrow(int32_t reg, const at::Tensor& tensor) {
    const auto index = static_cast<size_t>(reg);
    give_back(index);
    tensors_[index] = at::Tensor(
        c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor.unsafeGetTensorImpl()));
    borrowed_[index] = 1;
  }
  void free(int32_t reg) { set(reg, at::Tensor()); }
  // Hold a borrowed tensor for oneself, so that its lender may let go of it.
  void own(int32_t reg) {
    const auto index = static_cast<size_t>(reg);
    if (borrowed_[index] == 0) return;
    at::Tensor mine = tensors_[index];
    give_back(index);
    tensors_[index] = std::move(mine);
  }

  size_t scalar_count() const { return scalars_.size(); }

  Devices devices;
  bool is_profiled = false;  // instructions are ranges of torch's profiler

 private:
  void give_back(size_t index) {
    if (borrowed_[index] != 0) {
      static_cast<void>(tensors_[index].unsafeReleaseTensorImpl());
      borrowed_[index] = 0;
    }
  }

  c10::SmallVector<at::Tensor, 16> tensors_;
  c10::SmallVector<uint8_t, 32> borrowed_;
  c10::SmallVector<Value, 8> scalars_;
};

}  // namespace flambeau
