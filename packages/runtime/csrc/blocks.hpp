// Large CPU blocks kept for the next call: fresh pages cost more than the kernels that fill them.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace flambeau {

// Blocks of at least `kSmallest` bytes come from here, smaller ones from torch's allocator. What a program gives back
// is kept while the idle bytes stay below a limit and somebody asks for it again soon; thread-safe.
class BlockCache {
 public:
  static constexpr size_t kSmallest = size_t{1} << 20;

  static BlockCache& instance();

  // Uninitialised memory for `bytes`; throws what torch's allocator throws when there is none.
  c10::DataPtr allocate(size_t bytes);
  // Give every idle block back to the system; returns how many bytes those were.
  size_t release();
  size_t idle_bytes();
  // Idle bytes kept at most; 0 keeps none.
  void set_limit(size_t bytes);

 private:
  struct Block {
    void* data;
    size_t bytes;
    uint64_t given_back;  // on the clock of allocations
  };

  BlockCache() = default;
  static void recycle(void* pointer);
  Block* take(size_t bytes);
  std::vector<Block*> expired();
  static void destroy(const std::vector<Block*>& blocks);

  std::mutex mutex_;
  std::vector<Block*> idle_;  // in the order they were given back
  size_t idle_bytes_ = 0;
  size_t limit_ = size_t{256} << 20;
  uint64_t clock_ = 0;
};

}  // namespace flambeau
