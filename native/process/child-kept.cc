// What is different about a process that outlives its server: its output passes through memory that outlives the
// server too, its input is written by the keeper, and the keeper reports how it ended.
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/fd.h"
#include "process/child.h"
#include "process/keeper-channel.h"
#include "wire/bytes.h"
#include "wire/write-request.h"

namespace procwire {

// ---- output

// As `readChunk`: straight into the shared memory, with nothing between the read and the commit.
ssize_t Child::readKept(OutStream& stream, size_t most, napi_value& chunk) {
  most = std::min<size_t>(most, KEPT_READ_BYTES);
  char* const room = kept_->reserve();
  ssize_t length;
  if (stream.terminal) {
    length = readTerminalInto(stream, room, most);
  } else {
    do length = read(stream.watch.fd, room, most);
    while (length < 0 && errno == EINTR);
  }
  const int error = errno;
  if (length > 0) {
    kept_->commit(stream.terminal                  ? KEPT_TERMINAL
                  : stream.event == Event::kStderr ? KEPT_STDERR
                                                   : KEPT_STDOUT,
                  static_cast<size_t>(length));
    if (napi_create_buffer_copy(loop_->env(), static_cast<size_t>(length), room, nullptr, &chunk) == napi_ok)
      return length;
    errno = ENOMEM;
    return -1;
  }
  kept_->nothing();
  errno = error;
  return length;
}

// ---- input

bool Child::knowsWrite(std::string_view id) const { return kept_ ? kept_->knows(KeptWriteId(id)) : writeIds_.has(id); }

void Child::writeKept(const char* bytes, size_t length, const KeptWriteId& id) {
  if (!loop_ || stdinEnding_ || !kept_->header().has_stdin) return;
  forgetBurst();
  habit_.hadInput(nowNs());
  if (length <= kLineBytes) loop_->heardOfOne();
  keptQueue_.push_back({std::string(bytes, length), id, 0, false});
  queuedBytes_ += length;
  flushKept();
  if (queuedBytes_ > 0) wantsDrain_ = true;
}

// Moves queued input into the shared memory, as far as there is room. What is in there counts as written.
void Child::flushKept() {
  const bool hadRoom = !keptQueue_.empty();
  while (!keptQueue_.empty()) {
    KeptWrite& next = keptQueue_.front();
    if (!next.begun) {
      next.begun = true;
      const size_t done = kept_->beginWrite(next.id, next.bytes.size());
      next.done = done;
      queuedBytes_ -= done;
    }
    const size_t left = next.bytes.size() - next.done;
    const size_t taken = kept_->inputEnded() ? left : kept_->put(next.bytes.data() + next.done, left);
    next.done += taken;
    queuedBytes_ -= taken;
    writtenBytes_ += taken;
    if (next.done < next.bytes.size()) break;
    kept_->endWrite(next.id);
    keptQueue_.pop_front();
  }
  KEPT_STORE(kept_->header().in_awaited, keptQueue_.empty() ? 0u : 1u);
  if (hadRoom) kept_->poke();
  if (!keptQueue_.empty()) return;
  if (stdinEnding_) endKeptInput();
  if (wantsDrain_) {
    wantsDrain_ = false;
    tell(Event::kDrain);
  }
}

bool Child::writeKeptThrough(const char* bytes, size_t length, std::string_view id, bool hasId) {
  const KeptWriteId writeId = hasId ? KeptWriteId(id) : KeptWriteId();
  if (hasId && kept_->knows(writeId)) return true;
  // A write that does not fit at once is answered later, and JavaScript waits for that.
  if (!keptQueue_.empty() || (!kept_->inputEnded() && kept_->room() < length)) return false;
  writeKept(bytes, length, writeId);
  return true;
}

void Child::closeKeptStdin() {
  if (!loop_ || stdinEnding_ || !kept_->header().has_stdin) return;
  if (terminal_) {
    char keys[2];
    const size_t count = endOfFileKeys(kept_->header().line_open != 0, keys);
    writeKept(keys, count, KeptWriteId());
  }
  stdinEnding_ = true;
  if (keptQueue_.empty()) endKeptInput();
}

void Child::endKeptInput() {
  KEPT_STORE(kept_->header().in_closing, 1u);
  kept_->poke();
}

// ---- the end

// The keeper has recorded an end, or made room.
void Child::onPoke() {
  if (kept_->takePoke()) {
    kept_->noteKilled();
    tell(Event::kRefused);
  }
  if (!loop_) return;
  if (!keptQueue_.empty()) flushKept();
  if (!reaped_ && kept_->hasEnded()) onExit();
}

void Child::keptStatus(siginfo_t& info) const {
  const kept_header& header = kept_->header();
  info.si_code = header.exit_signal > 0 ? CLD_KILLED : CLD_EXITED;
  info.si_status = header.exit_signal > 0 ? header.exit_signal : header.exit_code;
}

void Child::forgetKept() {
  leaveTreeGroup(lease_);
  if (kept_) tellKeeper(KEEPER_FORGET, kept_->id());
}

void Child::recordExit(std::string_view status) {
  if (kept_ && !kept_->exitWasTold()) kept_->noteExit(status);
}

void Child::recordClosed() {
  if (!kept_ || kept_->closeWasTold()) return;
  kept_->noteClosed();
  tellKeeper(KEEPER_CLOSED, kept_->id());
}

}  // namespace procwire
