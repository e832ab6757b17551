// A child's input: written at once as far as it goes, the rest queued in order.
#include <errno.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/fd.h"
#include "process/child.h"
#include "wire/bytes.h"
#include "wire/write-request.h"

namespace procwire {
namespace {

// Input taken per round, so that one fast reader does not hold up the loop.
constexpr size_t kWriteBytesPerRound = 1024 * 1024;

}  // namespace

bool Child::writeThrough(const WriteRequest& request) {
  if (!loop_ || refusesInput_ || stdinEnding_ || (!terminal_ && !pipeStdin_)) return false;
  const size_t length = decodedLength(request.chunk);
  if (queuedBytes_ + length > limits_.queuedBytes) return false;
  char* bytes = loop_->scratch(request.chunk.size() / 4 * 3);
  if (base64Decode(reinterpret_cast<const uint8_t*>(request.chunk.data()), request.chunk.size(),
                   reinterpret_cast<uint8_t*>(bytes)) != static_cast<ptrdiff_t>(length))
    return false;
  if (kept_) return writeKeptThrough(bytes, length, request.writeId, request.writeId.data() != nullptr);
  if (request.writeId.data()) {
    if (writeIds_.has(request.writeId)) return true;
    writeIds_.add(request.writeId);
  }
  // The writer does not wait for it, so no drain event is needed when it is taken.
  const bool wantsDrain = wantsDrain_;
  write(bytes, length);
  wantsDrain_ = wantsDrain;
  return true;
}

void Child::write(const char* bytes, size_t length, const std::string* id) {
  if (kept_) return writeKept(bytes, length, id ? KeptWriteId(*id) : KeptWriteId());
  if (id) writeIds_.add(*id);
  int fd = stdinFd();
  if (!loop_ || fd < 0 || stdinEnding_ || length == 0) return;
  forgetBurst();
  habit_.hadInput(nowNs());
  if (length <= kLineBytes) loop_->heardOfOne();
  if (terminal_) lineOpen_ = bytes[length - 1] != '\n' && bytes[length - 1] != '\r';
  size_t taken = 0;
  if (queue_.empty()) {
    ssize_t written;
    do written = ::write(fd, bytes, length);
    while (written < 0 && errno == EINTR);
    if (written >= 0) {
      taken = static_cast<size_t>(written);
    } else if (errno != EAGAIN) {
      // Nobody reads any more: reported as an empty queue, not as an error.
      return endStdin();
    }
    writtenBytes_ += taken;
  }
  if (taken < length) {
    queue_.emplace_back(bytes + taken, length - taken);
    queuedBytes_ += length - taken;
    wantsDrain_ = true;
    if (terminal_) armOut(out_[0]);
    else loop_->arm(in_, EPOLLOUT);
  }
}

void Child::flush(bool hungUp) {
  size_t budget = kWriteBytesPerRound;
  while (!queue_.empty() && budget > 0 && stdinFd() >= 0) {
    const std::string& next = queue_.front();
    ssize_t written = ::write(stdinFd(), next.data() + queueOffset_, std::min(next.size() - queueOffset_, budget));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && !hungUp) break;
    if (written < 0) {
      // Nobody reads any more.
      endStdin();
      break;
    }
    size_t taken = static_cast<size_t>(written);
    writtenBytes_ += taken;
    queuedBytes_ -= taken;
    budget -= taken;
    queueOffset_ += taken;
    if (queueOffset_ == next.size()) {
      queue_.pop_front();
      queueOffset_ = 0;
    }
  }
  if (in_.fd >= 0) growPipe(in_.fd, writtenBytes_, stdinGrown_);
  if (!queue_.empty()) return;
  if (terminal_) armOut(out_[0]);
  else loop_->arm(in_, 0);
  if (stdinEnding_ && !terminal_) endStdin();
  if (wantsDrain_) {
    wantsDrain_ = false;
    tell(Event::kDrain);
  }
}

void Child::closeStdin() {
  if (kept_) return closeKeptStdin();
  if (!loop_ || stdinEnding_ || stdinFd() < 0) return;
  if (!terminal_) {
    stdinEnding_ = true;
    if (queue_.empty()) endStdin();
    return;
  }
  char keys[2];
  write(keys, endOfFileKeys(lineOpen_, keys));
  stdinEnding_ = true;
}

// A terminal has no end of file to close: its end-of-file character says so to a program that reads lines. After an
// unfinished line the first one only hands that line over.
size_t Child::endOfFileKeys(bool lineOpen, char (&keys)[2]) const {
  struct termios mode;
  bool canonical = true;
  keys[0] = 4;
  if (tcgetattr(out_[0].watch.fd, &mode) == 0) {
    if (mode.c_cc[VEOF] != 0) keys[0] = static_cast<char>(mode.c_cc[VEOF]);
    canonical = mode.c_lflag & ICANON;
  }
  keys[1] = keys[0];
  return canonical && lineOpen ? 2 : 1;
}

// Drops what nobody will read, and closes our end. A terminal's descriptor stays: it is also the way out.
void Child::endStdin() {
  if (kept_) {
    keptQueue_.clear();
    queuedBytes_ = 0;
    if (!closed_) return;
    // Its descriptor belongs to the shared memory.
    loop_->arm(in_, 0);
    in_.fd = -1;
    return;
  }
  queue_.clear();
  queueOffset_ = 0;
  queuedBytes_ = 0;
  if (in_.fd >= 0) {
    loop_->arm(in_, 0);
    closeFd(in_.fd);
  }
  giveBackPipe(stdinGrown_);
  if (terminal_ && loop_) armOut(out_[0]);
}

int Child::stdinFd() const { return terminal_ ? out_[0].watch.fd : in_.fd; }

}  // namespace procwire
