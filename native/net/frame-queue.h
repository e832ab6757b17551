// Outgoing WebSocket frames of one socket, built in the blocks that are sent.
#ifndef PROCWIRE_NET_FRAME_QUEUE_H
#define PROCWIRE_NET_FRAME_QUEUE_H

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/block-pool.h"

namespace procwire {

// First byte of a frame that is a whole text message: FIN and opcode.
constexpr char kWholeText = static_cast<char>(0x81);

// Descriptor that frames are sent to. A pipe is non-blocking, and may also be a socket.
enum class SinkKind { kSocket, kPipe };

class FrameQueue {
 public:
  explicit FrameQueue(BlockPool& pool) : pool_(pool) {}
  ~FrameQueue() { clear(); }

  // Queues a frame of a text message and returns the address of its payload, with one spare byte behind it. The caller
  // fills the payload immediately. Returns null if no memory is available.
  char* beginTextFrame(size_t payloadBytes, char opening);
  // Queues a complete frame of at least one byte in the same way.
  char* beginRawFrame(size_t bytes);

  size_t bytes() const { return bytes_; }
  // Bytes that the kernel has accepted so far.
  uint64_t sentBytes() const { return sentBytes_; }
  // Sends as much as the kernel accepts, without blocking. Returns 0, or the errno if the descriptor is no longer
  // writable.
  int send(int fd, SinkKind kind);
  void clear();

 private:
  char* reserve(size_t bytes);

  BlockPool& pool_;
  std::deque<Block> blocks_;
  size_t bytes_ = 0;
  uint64_t sentBytes_ = 0;
};

}  // namespace procwire

#endif
