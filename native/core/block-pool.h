// Memory for outgoing data, kept for reuse.
#ifndef PROCWIRE_BLOCK_POOL_H
#define PROCWIRE_BLOCK_POOL_H

#include <cstddef>
#include <vector>

namespace procwire {

struct Block {
  char* memory = nullptr;
  size_t capacity = 0;
  size_t from = 0;  // sent up to here
  size_t to = 0;    // filled up to here
};

// Fresh memory of a large chunk costs its page faults each time.
class BlockPool {
 public:
  ~BlockPool();
  // A block of at least this size, or one whose memory is null.
  Block take(size_t bytes);
  void give(Block& block);
  // Frees what is kept for reuse.
  void clear();

 private:
  std::vector<char*> small_;
  std::vector<char*> large_;
};

}  // namespace procwire

#endif
