// WebSocket frames on their way out of one socket, in order, built where they are sent from.
#ifndef PROCWIRE_FRAME_QUEUE_H
#define PROCWIRE_FRAME_QUEUE_H

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/block-pool.h"

namespace procwire {

class FrameQueue {
 public:
  explicit FrameQueue(BlockPool& pool) : pool_(pool) {}
  ~FrameQueue() { clear(); }

  // Where the payload of one more text frame belongs, with one byte to spare behind it; the caller fills it at once.
  // Null when there is no memory for it.
  char* text(size_t payloadBytes);
  // The same for a frame that is complete already.
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
