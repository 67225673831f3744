// The CUDA driver, found at run time: the calls that launching a compiled kernel takes, declared here and not taken
// from CUDA's headers, so that this builds and imports on machines without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace flambeau::cuda {

// One compiled kernel and what launching it takes. `key` decides all of it: equal keys are loaded once.
struct Image {
  std::string key, binary, name;
  uint32_t threads = 0, shared = 0;
  int64_t global_scratch = 0, profile_scratch = 0;  // bytes a block of the grid
  bool waits = false;  // for what was queued before it, by itself: it may be launched while that still runs
};

struct Driver;

// An image loaded on one device. Lives as long as the process: a recorded graph may launch it at any time.
struct Function {
  const Driver* driver = nullptr;
  void* handle = nullptr;
  void* context = nullptr;
  uint32_t threads = 0, shared = 0;
  int64_t global_scratch = 0, profile_scratch = 0;
  bool waits = false;
};

// Use the driver library of this name or path from now on; functions loaded before stay those of the old one.
void set_library(const std::string& path);

// `image` on the device `ordinal`, loaded by the first who asks; thread-safe. Throws ProgramError with the driver's
// words.
const Function& load(const Image& image, int ordinal);

// Queue `function` on `stream`; `parameters` are the addresses of its arguments. Throws ProgramError with the driver's
// words.
void launch(const Function& function, const uint32_t (&grid)[3], void* stream, void** parameters);

}  // namespace flambeau::cuda
