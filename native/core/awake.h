// The whole policy of spinning: what the loop waits for by polling instead of by sleeping, for how long, and when it
// gives up. A wake-up costs tens of microseconds, more than most answers take; but a processor that spins is taken from
// other programs. So every spin is short, is justified by what came before, and yields to any other thread that wants
// the processor.
#ifndef PROCWIRE_AWAKE_H
#define PROCWIRE_AWAKE_H

#include <sched.h>

#include <cstdint>

#include "core/clock.h"

namespace procwire {

// How long the answer to a write is held back for output that is expected to follow, so that both leave in one system
// call.
constexpr int64_t kAwaitOutputNs = 100 * 1000;
// Output this soon after input is taken for its answer.
constexpr int64_t kAnswersWithinNs = 150 * 1000;
// After this many spins in vain in a row the loop no longer spins for a child's answer.
constexpr int kMissedAnswers = 3;
// How soon after a reply the next line of a dialogue comes.
constexpr int64_t kNextLineNs = 100 * 1000;
// Both while a process floods: the processors are busy then, and one that spins is kept from the program that is to
// answer.
constexpr int64_t kAwaitInFloodNs = 40 * 1000;
// How long one dialogue may keep the rest of the loop waiting.
constexpr int64_t kMostDialogueNs = 4 * 1000 * 1000;
// How long a terminal in flood is given to bring its next 4 KiB: the kernel hands them over one by one.
constexpr int64_t kTerminalNextNs = 60 * 1000;

// Spins: calls `look` at least once, until it finds something or the time is over, and yields the processor between two
// calls. True when there was something.
template <class Look>
bool lookUntil(int64_t untilNs, Look look) {
  for (;;) {
    if (look()) return true;
    if (nowNs() >= untilNs) return false;
    sched_yield();
  }
}

// Whether a child's output usually comes soon after its input, so that the two are worth sending together.
class AnswerHabit {
 public:
  void hadInput(int64_t now) {
    lastInputNs_ = now;
    answered_ = false;
  }

  void hadOutput(int64_t now) {
    if (!answered_ && now - lastInputNs_ < kAnswersWithinNs) answersAtOnce_ = true;
    answered_ = true;
  }

  // No more output will come.
  void ended() { answersAtOnce_ = false; }

  bool answersAtOnce() const { return answersAtOnce_; }

  // Output was waited for since the last input: true when there was any.
  bool wasAwaited() {
    missed_ = answered_ ? 0 : missed_ + 1;
    if (missed_ >= kMissedAnswers) answersAtOnce_ = false;
    return answered_;
  }

 private:
  int64_t lastInputNs_ = 0;
  bool answered_ = false;  // there was output since the last input
  bool answersAtOnce_ = true;
  int missed_ = 0;
};

// Lines that follow each other closely: input, its answer, the next input. While that goes on, the loop stays with it
// without libuv's part between the lines, as long as libuv has nothing to tell.
class Dialogue {
 public:
  // The loop was woken.
  void enter(int64_t now) {
    enteredNs_ = now;
    if (now - repliedNs_ < kNextLineNs) goesOn_ = true;
  }

  // A child's answer was sent. True when the next line is worth waiting for.
  bool replied(int64_t now) {
    repliedNs_ = now;
    return goesOn_ && now - enteredNs_ <= kMostDialogueNs;
  }

  int64_t repliedNs() const { return repliedNs_; }
  bool goesOn() const { return goesOn_; }

  // No next line came in time.
  void over() { goesOn_ = false; }

 private:
  int64_t enteredNs_ = 0;
  int64_t repliedNs_ = 0;
  bool goesOn_ = false;
};

}  // namespace procwire

#endif
