// Output of a child: combines small reads into fewer callbacks, and reads nothing while paused.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/fd.h"
#include "process/child.h"

namespace procwire {
namespace {

// Reads of at least this size go directly into JavaScript memory. Smaller ones are copied from a shared buffer.
constexpr size_t kDirectReadBytes = kBulkEnterBytes;

// A stream with this many chunks in a row, each within the gap, is read once per millisecond.
constexpr int64_t kBurstGapNs = 3 * 1000 * 1000;
constexpr int kBurstChunks = 8;
// Larger chunks are not delayed, because a full pipe would block the writer.
constexpr size_t kCoalesceBelowBytes = 16 * 1024;
constexpr size_t kCoalesceBelowEnlargedBytes = 64 * 1024;
constexpr size_t kCoalesceBelowTerminalBytes = 2 * 1024;
constexpr size_t kCoalesceBelowDivisor = 4;

// Reports whether a terminal has more output. Polls first, because a read without data waits for the kernel worker that
// delivers the next bytes. Spins briefly in bulk mode, because a wake-up takes longer than another poll.
bool terminalHasMore(int fd, size_t alreadyRead) {
  const int64_t until = alreadyRead < kCoalesceBelowTerminalBytes ? 0 : nowNs() + kTerminalRefillNs;
  return spinUntil(until, [fd] {
    int available = 0;
    return ioctl(fd, FIONREAD, &available) == 0 && available > 0;
  });
}

// A terminal returns EIO when its last holder closes it. While this process holds the slave, only vhangup() causes
// that.
bool hasHungUp(int ptySlave) {
  const int error = errno;
  struct winsize size;
  const bool isHungUp = ptySlave < 0 || ioctl(ptySlave, TIOCGWINSZ, &size) < 0;
  errno = error;
  return isHungUp;
}

}  // namespace

void Child::armOutput(OutputStream& stream) {
  if (stream.watch.fd < 0) return;
  uint32_t events = 0;
  if (!paused_ && !stream.watch.delayed) events |= EPOLLIN;
  if (stream.terminal && queuedBytes_ > 0 && !segment_) events |= EPOLLOUT;
  loop_->arm(stream.watch, events);
}

void Child::readOnce(OutputStream& stream) {
  const size_t maxBytes = std::min(stream.watch.bulk ? loop_->bulkReadBytes() : kReadBytes,
                                   stream.terminal ? kTerminalChunkBytes : kReadBytes);
  napi_value chunk;
  ssize_t length = readChunk(stream, maxBytes, chunk);
  if (length == 0 || length == kReadFailed) {
    if (length == 0) endOutput(stream);
    else failOutput(stream, errno);
    settle();
    return;
  }
  if (length > 0) {
    onChunkRead(stream, static_cast<size_t>(length), maxBytes);
    armOutput(stream);
    emitOutput(stream, chunk);
  } else {
    armOutput(stream);
  }
}

// Decides whether the next read is delayed, so that a process that prints line by line costs one event for many lines.
// Silence, a large chunk or input ends the delay.
void Child::onChunkRead(OutputStream& stream, size_t length, size_t requestedBytes) {
  stream.totalBytes += length;
  stream.readLarge = length >= kDirectReadBytes;
  if (length >= kBulkEnterBytes) loop_->setBulk(stream.watch, true);
  else if (length < kBulkLeaveBytes) loop_->setBulk(stream.watch, false);
  if (!stream.watch.bulk) loop_->noteInteractive();
  if (!stream.terminal) enlargePipe(stream.watch.fd, stream.totalBytes, stream.isPipeEnlarged);
  int64_t now = nowNs();
  stream.burstChunks = now - stream.lastChunkNs < kBurstGapNs ? stream.burstChunks + 1 : 0;
  stream.lastChunkNs = now;
  replyPredictor_.onOutput(now);
  size_t below = stream.terminal         ? kCoalesceBelowTerminalBytes
                 : stream.isPipeEnlarged ? kCoalesceBelowEnlargedBytes
                                         : kCoalesceBelowBytes;
  // For short bulk reads, a quarter of the read size is enough.
  below = std::min(below, requestedBytes / kCoalesceBelowDivisor);
  if (stream.burstChunks >= kBurstChunks && length < requestedBytes && length < below) loop_->delay(stream.watch);
}

void Child::resetBurst() {
  for (OutputStream& stream : out_) {
    stream.burstChunks = 0;
    if (!stream.watch.delayed) continue;
    loop_->cancelDelay(stream.watch);
    armOutput(stream);
  }
}

// Returns the bytes read (with `chunk` set), 0 at the end, -1 if nothing is available, or kReadFailed with errno set.
ssize_t Child::readChunk(OutputStream& stream, size_t maxBytes, napi_value& chunk) {
  ssize_t length = segment_          ? readIntoSegment(stream, maxBytes, chunk)
                   : stream.terminal ? readTerminal(stream, maxBytes, chunk)
                                     : readPipe(stream, maxBytes, chunk);
  if (length >= 0) return length;
  if (errno == EAGAIN) return -1;
  if (stream.terminal && errno == EIO && hasHungUp(ptySlave_.get())) return 0;
  return kReadFailed;
}

ssize_t Child::copyChunk(const char* bytes, size_t length, napi_value& chunk) {
  if (copyToBuffer(loop_->env(), bytes, length, chunk)) return static_cast<ssize_t>(length);
  errno = ENOMEM;
  return -1;
}

ssize_t Child::readPipe(OutputStream& stream, size_t maxBytes, napi_value& chunk) {
  int fd = stream.watch.fd;
  int available = 0;
  if (stream.readLarge && ioctl(fd, FIONREAD, &available) == 0 && static_cast<size_t>(available) >= kDirectReadBytes) {
    size_t bytes = std::min(static_cast<size_t>(available), maxBytes);
    void* memory;
    if (NAPI_OK(napi_create_buffer(loop_->env(), bytes, &memory, &chunk))) {
      ssize_t length;
      do length = read(fd, memory, bytes);
      while (length < 0 && errno == EINTR);
      if (length <= 0 || static_cast<size_t>(length) == bytes) return length;
      // Happens only if another process read from the same pipe meanwhile.
      return copyChunk(static_cast<char*>(memory), static_cast<size_t>(length), chunk);
    }
  }
  char* scratch = loop_->scratch();
  ssize_t length;
  do length = read(fd, scratch, std::min(maxBytes, kReadBytes));
  while (length < 0 && errno == EINTR);
  return length > 0 ? copyChunk(scratch, static_cast<size_t>(length), chunk) : length;
}

ssize_t Child::readTerminal(OutputStream& stream, size_t maxBytes, napi_value& chunk) {
  char* scratch = loop_->scratch();
  const ssize_t length = readTerminalInto(stream, scratch, maxBytes);
  return length > 0 ? copyChunk(scratch, static_cast<size_t>(length), chunk) : length;
}

ssize_t Child::readTerminalInto(OutputStream& stream, char* to, size_t maxBytes) {
  size_t length = 0;
  ssize_t last = 0;
  while (length < maxBytes && (length == 0 || terminalHasMore(stream.watch.fd, length))) {
    last = read(stream.watch.fd, to + length, maxBytes - length);
    if (last < 0 && errno == EINTR) continue;
    if (last <= 0) break;
    length += static_cast<size_t>(last);
  }
  // Emits the bytes before an end of file first. The next read finds the end again.
  return length == 0 ? last : static_cast<ssize_t>(length);
}

// Emits the error, because unread output is lost and this is not an ordinary end.
void Child::failOutput(OutputStream& stream, int error) {
  endOutput(stream);
  loop_->emit(callbacks_.onEvent, "unreadable", {{"errno", toValue(loop_->env(), error)}});
}

void Child::endOutput(OutputStream& stream) {
  if (stream.watch.fd < 0) return;
  loop_->cancelDelay(stream.watch);
  loop_->arm(stream.watch, 0);
  stream.watch.close();
  releasePipeBudget(stream.isPipeEnlarged);
  // The terminal also carried the input.
  if (stream.terminal) endStdin();
}

}  // namespace procwire
