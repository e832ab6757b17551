#include "core/quiet-memory.h"

#include <malloc.h>

#include <algorithm>

#include "core/clock.h"
#include "core/loop.h"

namespace procwire {
namespace {

// How long after the last flood, and the end of the last process or connection, memory is given back: soon, and once
// more when the server has forgotten what it remembers of them for 30 s.
constexpr int64_t kQuietMs[] = {1000, 35 * 1000};
constexpr size_t kQuietMoments = sizeof kQuietMs / sizeof kQuietMs[0];
constexpr int64_t kNsPerMs = 1000 * 1000;

}  // namespace

void QuietMemory::keep(napi_value onQuiet) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 32 * 1024 * 1024);
#endif
  if (!onQuiet_) napi_create_reference(loop_.env(), onQuiet, 1, &onQuiet_);
}

void QuietMemory::wasBusy() {
  if (!onQuiet_) return;
  busyNs_ = nowNs();
  next_ = 0;
  if (!timerRunning_) onTimer();
}

void QuietMemory::onTimer() {
  timerRunning_ = false;
  if ((nowNs() - busyNs_) / kNsPerMs >= kQuietMs[next_]) {
    next_++;
    giveBack();
  }
  // What JavaScript did may have made the program busy again, or ended the loop.
  if (!onQuiet_ || next_ == kQuietMoments || timerRunning_) return;
  timerRunning_ = true;
  const int64_t leftMs = kQuietMs[next_] - (nowNs() - busyNs_) / kNsPerMs;
  uv_timer_start(
      timer_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->memory().onTimer(); },
      static_cast<uint64_t>(std::max<int64_t>(leftMs, 1)), 0);
}

void QuietMemory::giveBack() {
  napi_handle_scope scope;
  napi_open_handle_scope(loop_.env(), &scope);
  napi_value onQuiet;
  if (napi_get_reference_value(loop_.env(), onQuiet_, &onQuiet) == napi_ok) loop_.call(onQuiet, 0, nullptr);
  napi_close_handle_scope(loop_.env(), scope);
  loop_.blocks().clear();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void QuietMemory::close() {
  if (onQuiet_) napi_delete_reference(loop_.env(), onQuiet_);
  onQuiet_ = nullptr;
}

}  // namespace procwire
