#include "blocks.hpp"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>

namespace flambeau {
namespace {

constexpr size_t kGranule = size_t{1} << 16;
constexpr size_t kHugePage = size_t{1} << 21;
// A block that this many allocations passed over is given back to the system.
constexpr uint64_t kPatience = 64;

void* fresh(size_t bytes) {
  void* data = nullptr;
  const bool huge = bytes >= 2 * kHugePage;
  if (posix_memalign(&data, huge ? kHugePage : 64, bytes) != 0) return nullptr;
  // Only a hint: where huge pages are off, nothing changes.
  if (huge) static_cast<void>(madvise(data, bytes, MADV_HUGEPAGE));
  return data;
}

}  // namespace

BlockCache& BlockCache::instance() {
  // Never destroyed: tensors may outlive static objects.
  // NOLINTNEXTLINE(misc-static-initialization-cycle): it is asked for itself not here, but when the process forks
  static BlockCache* cache = [] {
    auto* made = new BlockCache();
    // A child of fork must not inherit a locked mutex.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] { instance().mutex_.unlock(); });
    return made;
  }();
  return *cache;
}

c10::DataPtr BlockCache::allocate(size_t bytes) {
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  Block* block = take(rounded);
  if (block == nullptr) {
    void* data = fresh(rounded);
    if (data == nullptr && release() > 0) data = fresh(rounded);
    if (data == nullptr) return c10::GetCPUAllocator()->allocate(bytes);
    block = new Block{data, rounded, 0};
  }
  return c10::DataPtr(block->data, block, &BlockCache::recycle, c10::Device(c10::kCPU));
}

BlockCache::Block* BlockCache::take(size_t bytes) {
  std::vector<Block*> old;
  Block* best = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    ++clock_;
    size_t where = 0;
    for (size_t i = 0; i < idle_.size(); ++i) {
      const size_t have = idle_[i]->bytes;
      if (have >= bytes && have <= bytes + bytes / 4 && (best == nullptr || have < best->bytes)) {
        best = idle_[i];
        where = i;
      }
    }
    if (best != nullptr) {
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(where));
      idle_bytes_ -= best->bytes;
    }
    old = expired();
  }
  destroy(old);
  return best;
}

void BlockCache::recycle(void* pointer) {
  auto* block = static_cast<Block*>(pointer);
  BlockCache& cache = instance();
  std::vector<Block*> old;
  {
    const std::scoped_lock lock(cache.mutex_);
    block->given_back = cache.clock_;
    cache.idle_.push_back(block);
    cache.idle_bytes_ += block->bytes;
    old = cache.expired();
  }
  destroy(old);
}

// Takes out what is too old or too much; the oldest go first. The lock is held.
std::vector<BlockCache::Block*> BlockCache::expired() {
  size_t count = 0;
  while (count < idle_.size() && (idle_bytes_ > limit_ || clock_ - idle_[count]->given_back > kPatience)) {
    idle_bytes_ -= idle_[count]->bytes;
    ++count;
  }
  std::vector<Block*> result(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(count));
  idle_.erase(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(count));
  return result;
}

void BlockCache::destroy(const std::vector<Block*>& blocks) {
  for (Block* block : blocks) {
    std::free(block->data);
    delete block;
  }
}

size_t BlockCache::release() {
  std::vector<Block*> all;
  size_t bytes = 0;
  {
    const std::scoped_lock lock(mutex_);
    all.swap(idle_);
    bytes = std::exchange(idle_bytes_, 0);
  }
  destroy(all);
  return bytes;
}

size_t BlockCache::idle_bytes() {
  const std::scoped_lock lock(mutex_);
  return idle_bytes_;
}

void BlockCache::set_limit(size_t bytes) {
  std::vector<Block*> old;
  {
    const std::scoped_lock lock(mutex_);
    limit_ = bytes;
    old = expired();
  }
  destroy(old);
}

}  // namespace flambeau
