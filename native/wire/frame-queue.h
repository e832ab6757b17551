// WebSocket frames on their way out of one socket, in order, built where they are sent from.
#ifndef PROCWIRE_FRAME_QUEUE_H
#define PROCWIRE_FRAME_QUEUE_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace procwire {

struct Block {
  char* memory = nullptr;
  size_t capacity = 0;
  size_t from = 0;  // sent up to here
  size_t to = 0;    // filled up to here
};

// Memory for frames, kept for the next ones: fresh memory of a large chunk costs its page faults each time.
class BlockPool {
 public:
  ~BlockPool();
  // At least that much, or no memory at all.
  Block take(size_t bytes);
  void give(Block& block);
  // Keeps nothing for the next ones.
  void clear();

 private:
  std::vector<char*> small_;
  std::vector<char*> large_;
};

class FrameQueue {
 public:
  explicit FrameQueue(BlockPool& pool) : pool_(pool) {}
  ~FrameQueue() { clear(); }

  // Where the payload of one more text frame belongs, with one byte to spare behind it; the caller fills it at once.
  // Null when there is no memory for it.
  char* text(size_t payloadBytes);
  // The same for a frame that is whole already.
  char* raw(size_t bytes);

  size_t bytes() const { return bytes_; }
  // What the system has taken so far.
  uint64_t sentBytes() const { return sentBytes_; }
  // Hands over as much as the system takes. 0, or the errno of a socket that cannot be written to any more.
  int send(int fd);
  void clear();

 private:
  char* room(size_t bytes);

  BlockPool& pool_;
  std::deque<Block> blocks_;
  size_t bytes_ = 0;
  uint64_t sentBytes_ = 0;
};

}  // namespace procwire

#endif
