#include "core/block-pool.h"

#include <stdlib.h>

namespace procwire {
namespace {

constexpr size_t kSmallBytes = 16 * 1024;
// The largest chunk a child gives at once (256 KiB) as base64, with its envelope.
constexpr size_t kLargeBytes = 384 * 1024;
// Free blocks kept of each size: what a busy turn has under way.
constexpr size_t kSmallKept = 16;
constexpr size_t kLargeKept = 8;

}  // namespace

BlockPool::~BlockPool() { clear(); }

void BlockPool::clear() {
  for (char* memory : small_) free(memory);
  for (char* memory : large_) free(memory);
  small_.clear();
  large_.clear();
}

Block BlockPool::take(size_t bytes) {
  Block block;
  block.capacity = bytes <= kSmallBytes ? kSmallBytes : bytes <= kLargeBytes ? kLargeBytes : bytes;
  std::vector<char*>* kept = bytes <= kSmallBytes ? &small_ : bytes <= kLargeBytes ? &large_ : nullptr;
  if (kept && !kept->empty()) {
    block.memory = kept->back();
    kept->pop_back();
  } else {
    block.memory = static_cast<char*>(malloc(block.capacity));
  }
  return block;
}

void BlockPool::give(Block& block) {
  if (block.capacity == kSmallBytes && small_.size() < kSmallKept) small_.push_back(block.memory);
  else if (block.capacity == kLargeBytes && large_.size() < kLargeKept) large_.push_back(block.memory);
  else free(block.memory);
  block.memory = nullptr;
}

}  // namespace procwire
