// Differences of persistent processes: output passes through the state segment, the supervisor writes the input and
// reports the exit status.
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/fd.h"
#include "net/byte-codec.h"
#include "net/write-request.h"
#include "process/child.h"
#include "process/supervisor-channel.h"

namespace procwire {

// ---- output

// Like `readChunk`, but reads directly into the segment and commits immediately after.
ssize_t Child::readIntoSegment(OutputStream& stream, size_t maxBytes, napi_value& chunk) {
  maxBytes = std::min<size_t>(maxBytes, SEGMENT_READ_BYTES);
  char* const space = segment_->reserve();
  ssize_t length;
  if (stream.terminal) {
    length = readTerminalInto(stream, space, maxBytes);
  } else {
    do length = read(stream.watch.fd, space, maxBytes);
    while (length < 0 && errno == EINTR);
  }
  const int error = errno;
  if (length > 0) {
    segment_->commit(stream.terminal       ? SEGMENT_TERMINAL
                     : &stream == &out_[1] ? SEGMENT_STDERR
                                           : SEGMENT_STDOUT,
                     static_cast<size_t>(length));
    return copyChunk(space, static_cast<size_t>(length), chunk);
  }
  segment_->cancelReserve();
  errno = error;
  return length;
}

// ---- input

bool Child::hasWriteId(std::string_view id) const {
  return segment_ ? segment_->hasWriteId(WriteIdHash(id)) : writeIds_.has(id);
}

void Child::writeToSegment(const char* bytes, size_t length, const WriteIdHash& id) {
  if (!loop_ || stdinEnding_ || !segment_->header().has_stdin) return;
  resetBurst();
  replyPredictor_.onInput(nowNs());
  if (length <= kMaxInteractiveInput) loop_->noteInteractive();
  segmentQueue_.push_back({std::string(bytes, length), id, 0, false});
  queuedBytes_ += length;
  flushToSegment();
  if (queuedBytes_ > 0) wantsDrain_ = true;
}

// Moves queued input into the segment as far as it fits. Input in the segment counts as written.
void Child::flushToSegment() {
  const bool hadInput = !segmentQueue_.empty();
  while (!segmentQueue_.empty()) {
    SegmentWrite& next = segmentQueue_.front();
    if (!next.begun) {
      next.begun = true;
      const size_t done = segment_->beginWrite(next.id, next.bytes.size());
      next.done = done;
      queuedBytes_ -= done;
    }
    const size_t remaining = next.bytes.size() - next.done;
    const size_t written =
        segment_->inputEnded() ? remaining : segment_->writeInput(next.bytes.data() + next.done, remaining);
    next.done += written;
    queuedBytes_ -= written;
    writtenBytes_ += written;
    if (next.done < next.bytes.size()) break;
    segment_->endWrite(next.id);
    segmentQueue_.pop_front();
  }
  // Before the wake-up: the supervisor that has freed space since then reads this flag when it wakes up.
  SEGMENT_STORE(segment_->header().server_waits_for_input_space, segmentQueue_.empty() ? 0u : 1u);
  if (hadInput) segment_->wakeSupervisor();
  if (!segmentQueue_.empty()) return;
  if (stdinEnding_) endSegmentInput();
  if (wantsDrain_) {
    wantsDrain_ = false;
    loop_->emit(callbacks_.onEvent, "drain");
  }
}

bool Child::tryDirectWriteToSegment(const char* bytes, size_t length, std::string_view id, bool hasId) {
  const WriteIdHash writeId = hasId ? WriteIdHash(id) : WriteIdHash();
  if (hasId && segment_->hasWriteId(writeId)) return true;
  // JavaScript handles a write that does not fit immediately, because it waits until the rest fits.
  if (!segmentQueue_.empty() || (!segment_->inputEnded() && segment_->inputCapacity() < length)) return false;
  writeToSegment(bytes, length, writeId);
  return true;
}

void Child::closeSegmentStdin() {
  if (!loop_ || stdinEnding_ || !segment_->header().has_stdin) return;
  if (terminal_) {
    char keys[2];
    const size_t count = eofKeystrokes(segment_->header().has_partial_line != 0, keys);
    writeToSegment(keys, count, WriteIdHash());
  }
  stdinEnding_ = true;
  if (segmentQueue_.empty()) endSegmentInput();
}

void Child::endSegmentInput() {
  SEGMENT_STORE(segment_->header().in_closing, 1u);
  segment_->wakeSupervisor();
}

// ---- exit

// Called when the supervisor recorded an exit or freed input space.
void Child::onSupervisorWake() {
  if (segment_->consumeWake()) {
    segment_->recordKilled();
    loop_->emit(callbacks_.onEvent, "refused");
  }
  if (!loop_) return;
  if (!segmentQueue_.empty()) flushToSegment();
  if (!reaped_ && segment_->hasEnded()) onExit();
}

void Child::segmentExitStatus(siginfo_t& info) const {
  const segment_header& header = segment_->header();
  info.si_code = header.exit_signal > 0 ? CLD_KILLED : CLD_EXITED;
  info.si_status = header.exit_signal > 0 ? header.exit_signal : header.exit_code;
}

void Child::releaseSegment() {
  releaseCgroup(lease_);
  if (segment_) notifySupervisor(SUPERVISOR_REMOVE, segment_->id());
}

void Child::recordExit(std::string_view status) {
  if (segment_ && !segment_->isExitEmitted()) segment_->recordExit(status);
}

void Child::recordClosed() {
  if (!segment_ || segment_->isCloseEmitted()) return;
  segment_->recordClosed();
  notifySupervisor(SUPERVISOR_CLOSED, segment_->id());
}

}  // namespace procwire
