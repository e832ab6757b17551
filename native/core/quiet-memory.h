// Freed memory is kept while the server is busy, because fresh memory costs its page faults, and given back to the
// system when it has been quiet for a while.
#ifndef PROCWIRE_QUIET_MEMORY_H
#define PROCWIRE_QUIET_MEMORY_H

#include <node_api.h>

#include <cstddef>
#include <cstdint>

namespace procwire {

class Loop;

class QuietMemory {
 public:
  explicit QuietMemory(Loop& loop) : loop_(loop) {}

  // Starts this, for the whole program. `onQuiet` lets JavaScript free first what it no longer needs.
  void keep(napi_value onQuiet);
  // A flood was read, or something that lived on the loop has ended.
  void wasBusy();
  // The loop is going away.
  void close();
  // The loop's own uv_timer_t for this.
  void*& timer() { return timer_; }

 private:
  void onTimer();
  void giveBack();

  Loop& loop_;
  void* timer_ = nullptr;
  napi_ref onQuiet_ = nullptr;
  int64_t busyNs_ = 0;
  size_t next_ = 0;  // which of the moments after `busyNs_` is waited for
  bool timerRunning_ = false;
};

}  // namespace procwire

#endif
