// Reusable memory blocks for outgoing data.
#ifndef PROCWIRE_CORE_BLOCK_POOL_H
#define PROCWIRE_CORE_BLOCK_POOL_H

#include <cstddef>
#include <vector>

namespace procwire {

struct Block {
  char* memory = nullptr;
  size_t capacity = 0;
  size_t from = 0;  // offset of the first unsent byte
  size_t to = 0;    // offset behind the last filled byte
};

// A free list of blocks in two sizes. Reuse avoids the page faults of fresh memory.
class BlockPool {
 public:
  ~BlockPool();
  // Returns a block of at least `bytes` bytes; its memory is null if the allocation fails.
  Block acquire(size_t bytes);
  void release(Block& block);
  // Frees all blocks on the free lists.
  void clear();

 private:
  std::vector<char*> small_;
  std::vector<char*> large_;
};

}  // namespace procwire

#endif
