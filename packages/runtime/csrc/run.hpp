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

// Sizes or strides of one instruction for this run; `room` holds them where they are not fixed.
using Sizes = c10::SmallVector<int64_t, 6>;
c10::IntArrayRef resolve(const Dims& dims, const Frame& frame, Sizes& room);

// Bytes of a tensor to allocate. Throws ProgramError for sizes that no tensor can have.
int64_t bytes_of(const Alloc& alloc, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// The instructions of CUDA devices (cuda_run.cpp): memory from torch's allocator, a kernel on the current stream.
void alloc_cuda(const Alloc& alloc, Frame& frame, Gil& gil);
void launch_cuda(const Launch& launch, Frame& frame, Gil& gil);

// Nested programs (subprogram.cpp): a call, a branch or a loop.
void run_subprogram(const Subprogram& sub, Frame& frame, Gil& gil, Position& position);

// Run all instructions of `program` on a frame whose inputs are bound.
void run_program(const Program& program, Frame& frame, Gil& gil, Position& position);

}  // namespace flambeau
