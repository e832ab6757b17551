// Retains freed memory while the server is busy, because fresh memory costs page faults. Returns it to the system after
// an idle period.
#ifndef PROCWIRE_CORE_MEMORY_TRIMMER_H
#define PROCWIRE_CORE_MEMORY_TRIMMER_H

#include <cstddef>
#include <cstdint>

#include "core/napi.h"

namespace procwire {

class Loop;

class MemoryTrimmer {
 public:
  explicit MemoryTrimmer(Loop& loop) : loop_(loop) {}

  // Enables trimming for the whole process. `onIdle` lets JavaScript free memory first.
  void enable(napi_value onIdle);
  // Records a bulk read, or the removal of an object from the loop.
  void noteActivity();
  // Returns free memory to the system now. Does not call `onIdle`.
  void releaseFreeMemory();
  // Called when the loop shuts down.
  void close();
  // The uv_timer_t of this trimmer, owned by the loop.
  void*& timer() { return timer_; }

 private:
  void startTimer(uint64_t ms);
  void onTimer();
  void trim();

  Loop& loop_;
  void* timer_ = nullptr;
  ValueRef onIdle_;
  int64_t lastActivityNs_ = 0;
  size_t next_ = 0;  // index of the next idle step
  bool timerRunning_ = false;
  bool hasStarted_ = false;  // the start of the server is over
};

}  // namespace procwire

#endif
