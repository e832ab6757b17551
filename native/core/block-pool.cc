#include "core/block-pool.h"

#include <stdlib.h>

namespace procwire {
namespace {

constexpr size_t kSmallBytes = 16 * 1024;
// Largest chunk that a child emits (256 KiB) as base64 with its JSON envelope.
constexpr size_t kLargeBytes = 384 * 1024;
// Maximum free blocks per size: the blocks that a busy loop iteration has in flight.
constexpr size_t kMaxSmallFree = 16;
constexpr size_t kMaxLargeFree = 8;

}  // namespace

BlockPool::~BlockPool() { clear(); }

void BlockPool::clear() {
  for (char* memory : small_) free(memory);
  for (char* memory : large_) free(memory);
  small_.clear();
  large_.clear();
}

Block BlockPool::acquire(size_t bytes) {
  Block block;
  block.capacity = bytes <= kSmallBytes ? kSmallBytes : bytes <= kLargeBytes ? kLargeBytes : bytes;
  std::vector<char*>* freeList = bytes <= kSmallBytes ? &small_ : bytes <= kLargeBytes ? &large_ : nullptr;
  if (freeList && !freeList->empty()) {
    block.memory = freeList->back();
    freeList->pop_back();
  } else {
    block.memory = static_cast<char*>(malloc(block.capacity));
  }
  return block;
}

void BlockPool::release(Block& block) {
  if (block.capacity == kSmallBytes && small_.size() < kMaxSmallFree) small_.push_back(block.memory);
  else if (block.capacity == kLargeBytes && large_.size() < kMaxLargeFree) large_.push_back(block.memory);
  else free(block.memory);
  block.memory = nullptr;
}

}  // namespace procwire
