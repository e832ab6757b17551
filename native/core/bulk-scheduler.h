// Divides the loop between bulk output and interactive processes.
//
// An interactive exchange (input, reply, next input, microseconds apart) and bulk output share the loop by time: after
// a slice of bulk output the exchange has the loop to itself for as long as that slice took. Slices are long: long
// reads cost less per byte, and most input then arrives between two slices. While other processes write only
// occasionally, slices are short, because each of their lines may have to wait for a whole slice.
#ifndef PROCWIRE_CORE_BULK_SCHEDULER_H
#define PROCWIRE_CORE_BULK_SCHEDULER_H

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace procwire {

// Maximum bytes per read of one stream.
constexpr size_t kReadBytes = 256 * 1024;
// Maximum bytes per bulk read while other processes are active.
constexpr size_t kShortReadBytes = 64 * 1024;
// How long a process counts as active after its last input or output.
constexpr int64_t kInteractiveWindowNs = 5 * 1000 * 1000;
// How long bulk output counts as active after its last slice.
constexpr int64_t kBulkActiveNs = 5 * 1000 * 1000;
// Maximum wait of bulk output for its next slice. A slice can look long because the thread was descheduled.
constexpr int64_t kMaxBulkWaitNs = 500 * 1000;

class BulkScheduler {
 public:
  void begin(int64_t now) { beganNs_ = now; }

  void end(int64_t now) {
    endedNs_ = now;
    dueNs_ = now + std::min(now - beganNs_, kMaxBulkWaitNs);
  }

  // Reports whether an interactive exchange must yield to bulk output now.
  bool isDue(int64_t now) const { return now >= dueNs_; }

  bool isActive(int64_t now) const { return now - endedNs_ < kBulkActiveNs; }

  // Records input or output of a process that is not in bulk mode.
  void noteInteractive(int64_t now) { lastInteractiveNs_ = now; }

  size_t readBytes(int64_t now, bool inExchange) const {
    return inExchange || now - lastInteractiveNs_ >= kInteractiveWindowNs ? kReadBytes : kShortReadBytes;
  }

 private:
  int64_t beganNs_ = 0;
  int64_t endedNs_ = 0;
  int64_t dueNs_ = 0;
  int64_t lastInteractiveNs_ = 0;
};

}  // namespace procwire

#endif
