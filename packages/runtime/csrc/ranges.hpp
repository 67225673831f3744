// What a program shows in torch's profiler: one range for the program, one for each kernel and library call, with its
// facts. Nothing of this exists, and nothing is asked of Python, before the first call under a profiler.
#pragma once

#include <ATen/record_function.h>

#include "program.hpp"

namespace flambeau {

using Facts = std::unordered_map<std::string, c10::IValue>;

struct Range {
  std::string name;  // empty: an instruction that is not shown
  Facts facts;
};

struct Ranges {
  Range whole;
  std::vector<Range> instructions;
};

// Whether somebody listens on this thread.
inline bool is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value(); }

// Ask `ranges(program) -> ((name, facts), ((name, facts) or None for each instruction))` once for a program and those
// nested in it. The GIL is held.
void name_ranges(const Program& program, PyObject* ranges);

// A range of the profiler, open while it lives.
class OpenRange {
 public:
  explicit OpenRange(const Range& range) : guard_(at::RecordScope::FUNCTION) {
    if (!range.name.empty() && guard_.isActive()) guard_.before(range.name.c_str(), &range.facts);
  }

 private:
  at::RecordFunction guard_;
};

}  // namespace flambeau
