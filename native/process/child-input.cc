// Input of a child: written immediately as far as possible, the rest queued in order.
#include <errno.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/fd.h"
#include "net/byte-codec.h"
#include "net/write-request.h"
#include "process/child.h"

namespace procwire {
namespace {

// Maximum bytes written per poll, so that a fast reader does not monopolize the loop.
constexpr size_t kMaxWriteBytesPerPoll = 1024 * 1024;

}  // namespace

bool Child::tryDirectWrite(const WriteRequest& request) {
  if (!loop_ || rejectsDirectInput_ || stdinEnding_ || (!terminal_ && !pipeStdin_)) return false;
  const size_t length = base64DecodedLength(request.chunk);
  if (queuedBytes_ + length > limits_.queuedBytes) return false;
  char* bytes = loop_->scratch(request.chunk.size() / 4 * 3);
  if (base64Decode(reinterpret_cast<const uint8_t*>(request.chunk.data()), request.chunk.size(),
                   reinterpret_cast<uint8_t*>(bytes)) != static_cast<ptrdiff_t>(length))
    return false;
  if (segment_) return tryDirectWriteToSegment(bytes, length, request.writeId, request.writeId.data() != nullptr);
  if (request.writeId.data()) {
    if (writeIds_.has(request.writeId)) return true;
    writeIds_.add(request.writeId);
  }
  // The writer does not wait, so it needs no drain event.
  const bool wantsDrain = wantsDrain_;
  write(bytes, length);
  wantsDrain_ = wantsDrain;
  return true;
}

void Child::write(const char* bytes, size_t length, const std::string* id) {
  if (segment_) return writeToSegment(bytes, length, id ? WriteIdHash(*id) : WriteIdHash());
  if (id) writeIds_.add(*id);
  int fd = stdinFd();
  if (!loop_ || fd < 0 || stdinEnding_ || length == 0) return;
  resetBurst();
  replyPredictor_.onInput(nowNs());
  if (length <= kMaxInteractiveInput) loop_->noteInteractive();
  if (terminal_) hasPartialLine_ = bytes[length - 1] != '\n' && bytes[length - 1] != '\r';
  size_t accepted = 0;
  if (queue_.empty()) {
    ssize_t written;
    do written = ::write(fd, bytes, length);
    while (written < 0 && errno == EINTR);
    if (written >= 0) {
      accepted = static_cast<size_t>(written);
    } else if (errno != EAGAIN) {
      // No process reads the input anymore. This is reported as an empty queue, not as an error.
      return endStdin();
    }
    writtenBytes_ += accepted;
  }
  if (accepted < length) {
    queue_.emplace_back(bytes + accepted, length - accepted);
    queuedBytes_ += length - accepted;
    wantsDrain_ = true;
    if (terminal_) armOutput(out_[0]);
    else loop_->arm(in_, EPOLLOUT);
  }
}

void Child::flush(bool hungUp) {
  size_t budget = kMaxWriteBytesPerPoll;
  while (!queue_.empty() && budget > 0 && stdinFd() >= 0) {
    const std::string& next = queue_.front();
    ssize_t written = ::write(stdinFd(), next.data() + queueOffset_, std::min(next.size() - queueOffset_, budget));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && !hungUp) break;
    if (written < 0) {
      // No process reads the input anymore.
      endStdin();
      break;
    }
    size_t accepted = static_cast<size_t>(written);
    writtenBytes_ += accepted;
    queuedBytes_ -= accepted;
    budget -= accepted;
    queueOffset_ += accepted;
    if (queueOffset_ == next.size()) {
      queue_.pop_front();
      queueOffset_ = 0;
    }
  }
  if (in_.fd >= 0) enlargePipe(in_.fd, writtenBytes_, isStdinEnlarged_);
  if (!queue_.empty()) return;
  if (terminal_) armOutput(out_[0]);
  else loop_->arm(in_, 0);
  if (stdinEnding_ && !terminal_) endStdin();
  if (wantsDrain_) {
    wantsDrain_ = false;
    loop_->emit(callbacks_.onEvent, "drain");
  }
}

void Child::closeStdin() {
  if (segment_) return closeSegmentStdin();
  if (!loop_ || stdinEnding_ || stdinFd() < 0) return;
  if (!terminal_) {
    stdinEnding_ = true;
    if (queue_.empty()) endStdin();
    return;
  }
  char keys[2];
  write(keys, eofKeystrokes(hasPartialLine_, keys));
  stdinEnding_ = true;
}

// Terminals signal the end of input by the EOF character. After a partial line, the first one only submits that line.
size_t Child::eofKeystrokes(bool hasPartialLine, char (&keys)[2]) const {
  struct termios mode;
  bool canonical = true;
  keys[0] = 4;
  if (tcgetattr(out_[0].watch.fd, &mode) == 0) {
    if (mode.c_cc[VEOF] != 0) keys[0] = static_cast<char>(mode.c_cc[VEOF]);
    canonical = mode.c_lflag & ICANON;
  }
  keys[1] = keys[0];
  return canonical && hasPartialLine ? 2 : 1;
}

// Drops the queue and closes the write end. A terminal's descriptor stays open, because it also carries the output.
void Child::endStdin() {
  if (segment_) {
    segmentQueue_.clear();
    queuedBytes_ = 0;
    if (!closed_) return;
    // The state segment owns this descriptor.
    loop_->arm(in_, 0);
    in_.close();
    return;
  }
  queue_.clear();
  queueOffset_ = 0;
  queuedBytes_ = 0;
  if (in_.fd >= 0) {
    loop_->arm(in_, 0);
    in_.close();
  }
  releasePipeBudget(isStdinEnlarged_);
  if (terminal_ && loop_) armOutput(out_[0]);
}

int Child::stdinFd() const { return terminal_ ? out_[0].watch.fd : in_.fd; }

}  // namespace procwire
