// When processes in flood have their turn beside the others on the loop, and how much is read from one in a turn.
//
// A dialogue (input, its answer, the next input, microseconds apart) and a flood share the loop by time: after a turn
// of a flood the dialogue has the loop to itself for as long as that turn took. A turn is therefore long, because long
// reads cost less per byte, and most lines of the dialogue meet no flood at all. Beside processes that write now and
// then, a turn is short, since every one of their lines may have to wait for it.
#ifndef PROCWIRE_FLOOD_TURNS_H
#define PROCWIRE_FLOOD_TURNS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace procwire {

// How much is read from one stream at once.
constexpr size_t kReadBytes = 256 * 1024;
// How much is read from a flood at once while other processes are active.
constexpr size_t kShortReadBytes = 64 * 1024;
// How long another process counts as active after its last output or input.
constexpr int64_t kShortReadsNs = 5 * 1000 * 1000;
// How long after its last turn a flood counts as going on.
constexpr int64_t kFloodGoesOnNs = 5 * 1000 * 1000;
// The longest a flood waits for its next turn: a turn may have been long because this thread was off the processor.
constexpr int64_t kMostFloodWaitNs = 500 * 1000;

class FloodTurns {
 public:
  void begin(int64_t now) { beganNs_ = now; }

  void end(int64_t now) {
    endedNs_ = now;
    dueNs_ = now + std::min(now - beganNs_, kMostFloodWaitNs);
  }

  // Whether a dialogue must let a flood have its turn now.
  bool isDue(int64_t now) const { return now >= dueNs_; }

  bool goesOn(int64_t now) const { return now - endedNs_ < kFloodGoesOnNs; }

  // A process that does not flood had output, or got a line of input.
  void heardOfOne(int64_t now) { heardNs_ = now; }

  size_t readBytes(int64_t now, bool inDialogue) const {
    return inDialogue || now - heardNs_ >= kShortReadsNs ? kReadBytes : kShortReadBytes;
  }

 private:
  int64_t beganNs_ = 0;
  int64_t endedNs_ = 0;
  int64_t dueNs_ = 0;
  int64_t heardNs_ = 0;
};

}  // namespace procwire

#endif
