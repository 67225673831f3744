// The interpreter of programs: one switch, no Python between the first instruction and the last.
#pragma once

#include "frame.hpp"

namespace flambeau {

// The GIL while a program runs: given up at the first long step, taken back for Python calls and at the end.
class Gil {
 public:
  Gil() = default;
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;
  ~Gil() { acquire(); }
  void release() {
    if (state_ == nullptr) state_ = PyEval_SaveThread();
  }
  void acquire() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
      state_ = nullptr;
    }
  }

 private:
  PyThreadState* state_ = nullptr;
};

// Where a run is, for the note on an exception.
struct Position {
  int32_t program = 0;
  int64_t instruction = -1;
};

// Run all instructions of `program` on a frame whose inputs are bound.
void run_program(const Program& program, Frame& frame, Gil& gil, Position& position);

}  // namespace flambeau
