// When the loop spins instead of sleeping, and for how long.
//
// A wake-up costs tens of microseconds, more than most replies take. A spinning processor is lost to other processes.
// Every spin is therefore short, justified by recent events, and yields to any other runnable thread.
#ifndef PROCWIRE_CORE_SPIN_POLICY_H
#define PROCWIRE_CORE_SPIN_POLICY_H

#include <sched.h>

#include <cstdint>

#include "core/clock.h"

namespace procwire {

// How long the response to a write waits for output of the process, so that both go out in one system call.
constexpr int64_t kReplyWaitNs = 100 * 1000;
// Output within this time after input counts as a reply.
constexpr int64_t kReplyWindowNs = 150 * 1000;
// After this many unsuccessful spins in a row the loop stops spinning for a child's replies.
constexpr int kMaxMissedReplies = 3;
// How long the loop spins for the next input after a reply.
constexpr int64_t kNextInputNs = 100 * 1000;
// Replaces both waits while bulk output is active. The processors are busy then, and spinning would delay the process
// that is to reply.
constexpr int64_t kReplyWaitInBulkNs = 40 * 1000;
// Replaces `kNextInputNs` while another connection has bulk output. The client may have to wait for a processor, and
// the exchange must not lose its share of the loop meanwhile. Bulk output is served during this wait. Decision 50 has
// the measurements.
constexpr int64_t kNextInputInBulkNs = 1000 * 1000;
// Maximum time that one exchange may keep the rest of the loop waiting.
constexpr int64_t kMaxExchangeNs = 4 * 1000 * 1000;
// How long to wait for the next 4 KiB of a terminal in bulk mode. The kernel delivers them one by one.
constexpr int64_t kTerminalRefillNs = 60 * 1000;

// Calls `poll` at least once, until it returns true or the deadline passes. Yields the processor between calls. Returns
// whether `poll` succeeded.
template <class Poll>
bool spinUntil(int64_t untilNs, Poll poll) {
  for (;;) {
    if (poll()) return true;
    if (nowNs() >= untilNs) return false;
    sched_yield();
  }
}

// Predicts whether a child replies to input within `kReplyWindowNs`. If so, the response to the write and the reply go
// out in one send.
class ReplyPredictor {
 public:
  void onInput(int64_t now) {
    lastInputNs_ = now;
    hasReply_ = false;
  }

  void onOutput(int64_t now) {
    if (!hasReply_ && now - lastInputNs_ < kReplyWindowNs) repliesImmediately_ = true;
    hasReply_ = true;
  }

  // Called when no more output follows.
  void onOutputEnded() { repliesImmediately_ = false; }

  bool repliesImmediately() const { return repliesImmediately_; }

  // Records the result of a wait for output. Returns whether there was any since the last input.
  bool recordWait() {
    missedReplies_ = hasReply_ ? 0 : missedReplies_ + 1;
    if (missedReplies_ >= kMaxMissedReplies) repliesImmediately_ = false;
    return hasReply_;
  }

 private:
  int64_t lastInputNs_ = 0;
  bool hasReply_ = false;  // there was output since the last input
  bool repliesImmediately_ = true;
  int missedReplies_ = 0;
};

// Bulk output during an exchange: none, only on the connection of the exchange, or on another one. A client that reads
// bulk output and replies on one connection is slow itself, so that waiting for it would only slow its bulk output.
enum class BulkActivity { none, sameConnection, otherConnection };

// Input, reply and next input in close succession. While an exchange is active, the loop serves it without running
// libuv in between, unless libuv has events.
class InteractiveExchange {
 public:
  // Called when the loop wakes up.
  void enter(int64_t now) {
    startNs_ = now;
    if (now - lastReplyNs_ < kNextInputNs) isActive_ = true;
  }

  // Called when a reply was sent.
  void onReply(int64_t now) { lastReplyNs_ = now; }

  // Reports whether waiting for the next input is worthwhile, after a poll that sent a reply or not. While another
  // connection has bulk output, the wait continues without a reply: the process that is to reply may have to wait for a
  // processor.
  bool awaitsInput(int64_t now, bool hasReply, BulkActivity bulk) {
    if (now - startNs_ > kMaxExchangeNs) return false;
    if (bulk != BulkActivity::otherConnection) return isActive_ && hasReply;
    isActive_ = now - lastReplyNs_ < kNextInputInBulkNs;
    return isActive_;
  }

  // Returns when the wait for the next input ends.
  int64_t awaitsInputUntil(BulkActivity bulk) const {
    return lastReplyNs_ + (bulk == BulkActivity::none             ? kNextInputNs
                           : bulk == BulkActivity::sameConnection ? kReplyWaitInBulkNs
                                                                  : kNextInputInBulkNs);
  }

  bool isActive() const { return isActive_; }

  // Called when no input followed in time.
  void end() { isActive_ = false; }

 private:
  int64_t startNs_ = 0;
  int64_t lastReplyNs_ = 0;
  bool isActive_ = false;
};

}  // namespace procwire

#endif
