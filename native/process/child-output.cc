// A child's output: read as it comes, in chunks worth a callback, and not at all while paused.
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

// Reads at least this large go straight into the memory JavaScript gets; smaller ones are copied from a shared buffer.
constexpr size_t kDirectReadBytes = kBulkFromBytes;

// A stream whose chunks come this close together, this many times, is read a millisecond at a time.
constexpr int64_t kBurstGapNs = 3 * 1000 * 1000;
constexpr int kBurstChunks = 8;
// Larger chunks are efficient as they are: waiting would only let a full pipe stall the writer.
constexpr size_t kCoalesceBelowBytes = 16 * 1024;
constexpr size_t kCoalesceBelowGrownBytes = 64 * 1024;
constexpr size_t kCoalesceBelowTerminalBytes = 2 * 1024;
constexpr size_t kCoalesceBelowPart = 4;

// A read that finds nothing still waits for the kernel's worker that brings the next bytes, and being woken by it takes
// longer than to look again. So look first, and in a flood spin for a moment.
bool terminalHasMore(int fd, size_t alreadyRead) {
  const int64_t until = alreadyRead < kCoalesceBelowTerminalBytes ? 0 : nowNs() + kTerminalNextNs;
  return lookUntil(until, [fd] {
    int available = 0;
    return ioctl(fd, FIONREAD, &available) == 0 && available > 0;
  });
}

// A terminal whose last holder is gone says EIO. While its other side is held here that can only come of a vhangup().
bool hasHungUp(int slave) {
  const int error = errno;
  struct winsize size;
  const bool isHungUp = slave < 0 || ioctl(slave, TIOCGWINSZ, &size) < 0;
  errno = error;
  return isHungUp;
}

}  // namespace

void Child::armOut(OutStream& stream) {
  if (stream.watch.fd < 0) return;
  uint32_t events = 0;
  if (!paused_ && !stream.watch.delayed) events |= EPOLLIN;
  if (stream.terminal && queuedBytes_ > 0 && !kept_) events |= EPOLLOUT;
  loop_->arm(stream.watch, events);
}

void Child::readOnce(OutStream& stream) {
  const size_t most = std::min(stream.watch.bulk ? loop_->bulkReadBytes() : kReadBytes,
                               stream.terminal ? kTerminalChunkBytes : kReadBytes);
  napi_value chunk;
  ssize_t length = readChunk(stream, most, chunk);
  if (length == 0 || length == kReadFailed) {
    if (length == 0) endOut(stream);
    else failOut(stream, errno);
    settle();
    return;
  }
  if (length > 0) {
    chunkDone(stream, static_cast<size_t>(length), most);
    armOut(stream);
    tell(stream.event, chunk);
  } else {
    armOut(stream);
  }
}

// Decides whether the next read should wait a little, so that a program printing line by line costs one event for
// many lines. Silence, a large chunk or input for the program end it at once.
void Child::chunkDone(OutStream& stream, size_t length, size_t asked) {
  stream.totalBytes += length;
  stream.readLarge = length >= kDirectReadBytes;
  if (length >= kBulkFromBytes) loop_->setBulk(stream.watch, true);
  else if (length < kBulkUntilBytes) loop_->setBulk(stream.watch, false);
  if (!stream.watch.bulk) loop_->heardOfOne();
  if (!stream.terminal) growPipe(stream.watch.fd, stream.totalBytes, stream.grown);
  int64_t now = nowNs();
  stream.quickChunks = now - stream.lastChunkNs < kBurstGapNs ? stream.quickChunks + 1 : 0;
  stream.lastChunkNs = now;
  habit_.hadOutput(now);
  size_t below = stream.terminal ? kCoalesceBelowTerminalBytes
                 : stream.grown  ? kCoalesceBelowGrownBytes
                                 : kCoalesceBelowBytes;
  // From a flood that is read in short pieces, a good part of a piece is enough.
  below = std::min(below, asked / kCoalesceBelowPart);
  if (stream.quickChunks >= kBurstChunks && length < asked && length < below) loop_->delay(stream.watch);
}

void Child::forgetBurst() {
  for (OutStream& stream : out_) {
    stream.quickChunks = 0;
    if (!stream.watch.delayed) continue;
    loop_->undelay(stream.watch);
    armOut(stream);
  }
}

// Bytes read (`chunk` is set), 0 at the end, -1 when there is nothing now, kReadFailed with errno when reading failed.
ssize_t Child::readChunk(OutStream& stream, size_t most, napi_value& chunk) {
  ssize_t length = kept_             ? readKept(stream, most, chunk)
                   : stream.terminal ? readTerminal(stream, most, chunk)
                                     : readPipe(stream, most, chunk);
  if (length >= 0) return length;
  if (errno == EAGAIN) return -1;
  if (stream.terminal && errno == EIO && hasHungUp(slave_)) return 0;
  return kReadFailed;
}

ssize_t Child::readPipe(OutStream& stream, size_t most, napi_value& chunk) {
  int fd = stream.watch.fd;
  int available = 0;
  if (stream.readLarge && ioctl(fd, FIONREAD, &available) == 0 && static_cast<size_t>(available) >= kDirectReadBytes) {
    size_t wanted = std::min(static_cast<size_t>(available), most);
    void* memory;
    if (napi_create_buffer(loop_->env(), wanted, &memory, &chunk) == napi_ok) {
      ssize_t length;
      do length = read(fd, memory, wanted);
      while (length < 0 && errno == EINTR);
      if (length <= 0 || static_cast<size_t>(length) == wanted) return length;
      // Only if another process read from our end meanwhile.
      napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), memory, nullptr, &chunk);
      return length;
    }
  }
  char* scratch = loop_->scratch();
  ssize_t length;
  do length = read(fd, scratch, std::min(most, kReadBytes));
  while (length < 0 && errno == EINTR);
  if (length > 0 &&
      napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), scratch, nullptr, &chunk) != napi_ok) {
    errno = ENOMEM;
    return -1;
  }
  return length;
}

ssize_t Child::readTerminal(OutStream& stream, size_t most, napi_value& chunk) {
  char* scratch = loop_->scratch();
  const ssize_t length = readTerminalInto(stream, scratch, most);
  if (length <= 0) return length;
  if (napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), scratch, nullptr, &chunk) != napi_ok) {
    errno = ENOMEM;
    return -1;
  }
  return length;
}

ssize_t Child::readTerminalInto(OutStream& stream, char* to, size_t most) {
  size_t length = 0;
  ssize_t last = 0;
  while (length < most && (length == 0 || terminalHasMore(stream.watch.fd, length))) {
    last = read(stream.watch.fd, to + length, most - length);
    if (last < 0 && errno == EINTR) continue;
    if (last <= 0) break;
    length += static_cast<size_t>(last);
  }
  // What came before an end is emitted first; the next read finds the end again.
  return length == 0 ? last : static_cast<ssize_t>(length);
}

// What the stream held is lost, so this is not an ordinary end: it is emitted with the reason.
void Child::failOut(OutStream& stream, int error) {
  endOut(stream);
  napi_value number;
  napi_create_int32(loop_->env(), error, &number);
  tell(Event::kUnreadable, number);
}

void Child::endOut(OutStream& stream) {
  if (stream.watch.fd < 0) return;
  loop_->undelay(stream.watch);
  loop_->arm(stream.watch, 0);
  closeFd(stream.watch.fd);
  giveBackPipe(stream.grown);
  // The terminal was also the way in.
  if (stream.terminal) endStdin();
}

}  // namespace procwire
