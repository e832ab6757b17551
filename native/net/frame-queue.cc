#include "net/frame-queue.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace procwire {
namespace {

// Maximum blocks per system call.
constexpr int kBlocksPerSend = 16;

}  // namespace

char* FrameQueue::beginTextFrame(size_t payloadBytes, char opening) {
  const size_t lengthBytes = payloadBytes < 126 ? 0 : payloadBytes < 65536 ? 2 : 8;
  char* frame = reserve(2 + lengthBytes + payloadBytes);
  if (!frame) return nullptr;
  frame[0] = opening;
  frame[1] = static_cast<char>(lengthBytes == 0 ? payloadBytes : lengthBytes == 2 ? 126 : 127);
  for (size_t at = 0; at < lengthBytes; at++)
    frame[2 + at] = static_cast<char>(static_cast<uint64_t>(payloadBytes) >> (8 * (lengthBytes - 1 - at)));
  return frame + 2 + lengthBytes;
}

char* FrameQueue::beginRawFrame(size_t bytes) { return reserve(bytes); }

char* FrameQueue::reserve(size_t bytes) {
  // The extra byte is for writers that terminate their text with a zero byte.
  if (blocks_.empty() || blocks_.back().capacity - blocks_.back().to < bytes + 1) {
    const Block block = pool_.acquire(bytes + 1);
    if (!block.memory) return nullptr;
    blocks_.push_back(block);
  }
  Block& block = blocks_.back();
  char* found = block.memory + block.to;
  block.to += bytes;
  bytes_ += bytes;
  return found;
}

int FrameQueue::send(int fd, SinkKind kind) {
  while (bytes_ > 0) {
    struct iovec parts[kBlocksPerSend];
    int count = 0;
    size_t requested = 0;
    for (const Block& block : blocks_) {
      if (count == kBlocksPerSend) break;
      parts[count].iov_base = block.memory + block.from;
      parts[count].iov_len = block.to - block.from;
      requested += parts[count++].iov_len;
    }
    struct msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    // Node ignores the SIGPIPE of a pipe.
    const ssize_t sent =
        kind == SinkKind::kSocket ? sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : writev(fd, parts, count);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN ? 0 : errno;
    bytes_ -= static_cast<size_t>(sent);
    sentBytes_ += static_cast<uint64_t>(sent);
    for (size_t remaining = static_cast<size_t>(sent); remaining > 0;) {
      Block& first = blocks_.front();
      const size_t part = std::min(remaining, first.to - first.from);
      first.from += part;
      remaining -= part;
      if (first.from < first.to) break;
      pool_.release(first);
      blocks_.pop_front();
    }
    // A partial send means that the socket buffer is full. Another call would only fail with EAGAIN.
    if (static_cast<size_t>(sent) < requested) return 0;
  }
  return 0;
}

void FrameQueue::clear() {
  for (Block& block : blocks_) pool_.release(block);
  blocks_.clear();
  bytes_ = 0;
}

}  // namespace procwire
