// Nested programs: one call, one of two branches, or a loop.
#include "run.hpp"

#include <ATen/ops/stack.h>

namespace flambeau {
namespace {

// A value passed into or out of a nested program.
struct Passed {
  at::Tensor tensor;
  Value scalar;
  bool is_tensor = false;
};
using Values = std::vector<Passed>;

Passed pass(const Argument& argument, const Frame& frame) {
  Passed passed;
  passed.is_tensor = argument.kind == Argument::Kind::Tensor;
  if (passed.is_tensor) passed.tensor = frame.tensor(argument.reg);
  else passed.scalar = argument.kind == Argument::Kind::Scalar ? frame.scalar(argument.reg) : argument.literal;
  return passed;
}

bool truth(const Passed& passed, Gil& gil) {
  if (!passed.is_tensor) return passed.scalar.truth();
  // On a GPU this waits.
  if (!passed.tensor.device().is_cpu()) gil.release();
  return passed.tensor.item().toBool();
}

Values results_of(const Program& program, const Values& inputs, const Frame& frame) {
  Values results;
  results.reserve(program.outputs.size());
  for (const Output& output : program.outputs) {
    Passed passed;
    passed.is_tensor = output.kind == Output::Kind::Tensor || output.kind == Output::Kind::None;
    if (output.kind == Output::Kind::Tensor) passed.tensor = frame.tensor(output.index);
    else if (output.kind == Output::Kind::Scalar) passed.scalar = frame.operand(output.operand);
    else if (output.kind == Output::Kind::Input) passed = inputs[static_cast<size_t>(output.index)];
    results.push_back(std::move(passed));
  }
  return results;
}

Values run_nested(const Program& program, Values inputs, Frame& outer_frame, Gil& gil, Position& position) {
  Frame frame(program, outer_frame.devices, outer_frame.is_profiled);
  bool hands_back = false;
  for (const Output& output : program.outputs) hands_back = hands_back || output.kind == Output::Kind::Input;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input& input = program.inputs[i];
    if (inputs[i].is_tensor == input.is_scalar) {
      throw ProgramError(ProgramError::Type::TypeMismatch,
                         "a nested program got a tensor for a number, or the reverse");
    }
    if (input.is_scalar) frame.set(input.reg, inputs[i].scalar);
    else if (hands_back) frame.set(input.reg, at::Tensor(inputs[i].tensor));
    // Held by the frame alone: what a loop carries is gone after its last use.
    else frame.set(input.reg, std::move(inputs[i].tensor));
  }
  const Position outer = position;
  run_program(program, frame, gil, position);
  outer_frame.devices = frame.devices;
  position = outer;
  return results_of(program, inputs, frame);
}

// Element `step` of the first dimension, as a view.
at::Tensor slice_of(const at::Tensor& source, int64_t step) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(source.storage()),
                                                             source.key_set(), source.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes().slice(1), source.strides().slice(1),
                                                    source.storage_offset() + step * source.stride(0));
  return made;
}

// What one `Subprogram` needs while it runs.
struct Runner {
  const Subprogram& sub;
  Frame& frame;
  Gil& gil;
  Position& position;
  Values extra;

  Values run(const Program& program, Values given) {
    given.insert(given.end(), extra.begin(), extra.end());
    return run_nested(program, std::move(given), frame, gil, position);
  }

  Values repeat_while(Values carried, bool& ran) {
    while (truth(run(*sub.programs.at(0), carried).at(0), gil)) {
      carried = run(*sub.programs.at(1), std::move(carried));
      ran = true;
    }
    return carried;
  }

  // What the steps give, stacked where it is taken; what is carried into the loop where there is no step.
  Values repeat_stacking(Values carried) {
    std::vector<std::vector<at::Tensor>> rows(sub.outs.size());
    const auto keep = [&](const Values& given) {
      for (size_t i = 0; i < rows.size(); ++i) {
        if (sub.outs[i].kind != Out::Kind::Drop) rows[i].push_back(given.at(i).tensor);
      }
    };
    bool ran = false;
    while (truth(run(*sub.programs.at(0), carried).at(0), gil)) {
      carried = run(*sub.programs.at(1), std::move(carried));
      keep(carried);
      ran = true;
    }
    if (!ran) keep(carried);
    Values results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      results[i].is_tensor = true;
      if (!rows[i].empty()) results[i].tensor = at::stack(rows[i]);
      rows[i].clear();
    }
    return results;
  }

  Values scan(Values carried, bool& ran) {
    const int64_t length = frame.operand(sub.length).as_int();
    const size_t fixed = extra.size();
    for (const int32_t reg : sub.slices) {
      const at::Tensor& tensor = frame.tensor(reg);
      if (tensor.dim() == 0 || tensor.size(0) < length) {
        throw ProgramError(ProgramError::Type::Runtime,
                           "a loop of " + std::to_string(length) + " steps over a tensor that is shorter");
      }
    }
    for (int64_t step = 0; step < length; ++step) {
      extra.resize(fixed);
      for (const int32_t reg : sub.slices) {
        Passed passed;
        passed.is_tensor = true;
        passed.tensor = slice_of(frame.tensor(reg), step);
        extra.push_back(std::move(passed));
      }
      carried = run(*sub.programs.at(0), std::move(carried));
      ran = true;
    }
    return carried;
  }
};

void receive_all(const Subprogram& sub, Values results, Frame& frame) {
  if (results.size() != sub.outs.size()) {
    throw ProgramError(ProgramError::Type::Runtime, std::to_string(results.size()) + " values were returned, " +
                                                        std::to_string(sub.outs.size()) + " are expected");
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Out& out = sub.outs[i];
    if (out.kind == Out::Kind::Drop) continue;
    if ((out.kind == Out::Kind::Tensor) != results[i].is_tensor) {
      throw ProgramError(ProgramError::Type::TypeMismatch,
                         "a nested program returned a tensor for a number, or the reverse");
    }
    if (results[i].is_tensor) frame.set(out.reg, std::move(results[i].tensor));
    else frame.set(out.reg, results[i].scalar);
  }
}

}  // namespace

void run_subprogram(const Subprogram& sub, Frame& frame, Gil& gil, Position& position) {
  Values values, extra;
  for (const Argument& argument : sub.inputs) values.push_back(pass(argument, frame));
  for (const Argument& argument : sub.extra) extra.push_back(pass(argument, frame));
  Runner nested{sub, frame, gil, position, std::move(extra)};
  Values results;
  bool ran = true;
  switch (sub.kind) {
    case Subprogram::Kind::Call: results = nested.run(*sub.programs.at(0), std::move(values)); break;
    case Subprogram::Kind::Cond: {
      const Program& chosen = truth(values.at(0), gil) ? *sub.programs.at(0) : *sub.programs.at(1);
      values.erase(values.begin());
      results = nested.run(chosen, std::move(values));
      break;
    }
    case Subprogram::Kind::While:
      ran = false;
      results = nested.repeat_while(std::move(values), ran);
      break;
    case Subprogram::Kind::Stack: results = nested.repeat_stacking(std::move(values)); break;
    case Subprogram::Kind::Scan:
      ran = false;
      results = nested.scan(std::move(values), ran);
      break;
  }
  if (!ran) {
    // No step: the results are what came in, in memory of their own.
    for (Passed& result : results) {
      if (result.is_tensor && result.tensor.defined()) result.tensor = result.tensor.clone();
    }
  }
  receive_all(sub, std::move(results), frame);
}

}  // namespace flambeau
