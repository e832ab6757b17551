#include "core/memory-trimmer.h"

#include <malloc.h>

#include <algorithm>

#include "core/clock.h"
#include "core/loop.h"

namespace procwire {
namespace {

// Idle times after which memory is returned: soon after the last activity, and again when the server has evicted its
// state of ended processes and connections (30 s). Each time has two steps: finalizers and V8's sweeper run after the
// garbage collection, and what they release needs the second step.
constexpr int64_t kIdleMs[] = {1000, 2000, 35 * 1000, 36 * 1000};
constexpr size_t kIdleSteps = sizeof kIdleMs / sizeof kIdleMs[0];
constexpr int64_t kNsPerMs = 1000 * 1000;

}  // namespace

void MemoryTrimmer::enable(napi_value onIdle) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 32 * 1024 * 1024);
#endif
  if (!onIdle_) onIdle_ = ValueRef(loop_.env(), onIdle);
}

void MemoryTrimmer::noteActivity() {
  if (!onIdle_) return;
  lastActivityNs_ = nowNs();
  next_ = 0;
  if (!timerRunning_) onTimer();
}

void MemoryTrimmer::onTimer() {
  timerRunning_ = false;
  if ((nowNs() - lastActivityNs_) / kNsPerMs >= kIdleMs[next_]) {
    next_++;
    trim();
  }
  // The callback may have caused new activity, or ended the loop.
  if (!onIdle_ || next_ == kIdleSteps || timerRunning_) return;
  timerRunning_ = true;
  const int64_t remainingMs = kIdleMs[next_] - (nowNs() - lastActivityNs_) / kNsPerMs;
  uv_timer_start(
      timer_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->trimmer().onTimer(); },
      static_cast<uint64_t>(std::max<int64_t>(remainingMs, 1)), 0);
}

void MemoryTrimmer::trim() {
  {
    HandleScope scope(loop_.env());
    loop_.call(onIdle_.get(), 0, nullptr);
  }
  releaseFreeMemory();
}

void MemoryTrimmer::releaseFreeMemory() {
  loop_.blocks().clear();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void MemoryTrimmer::close() { onIdle_.reset(); }

}  // namespace procwire
