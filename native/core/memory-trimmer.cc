#include "core/memory-trimmer.h"

#include <link.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/clock.h"
#include "core/loop.h"

namespace procwire {
namespace {

// Idle times after which memory is returned: soon after the last activity, and again when the server has evicted its
// state of ended processes and connections (30 s). Each time has two steps: finalizers and V8's sweeper run after the
// garbage collection, and what they release needs the second step.
constexpr int64_t kIdleMs[] = {1000, 2000, 35 * 1000, 36 * 1000};
constexpr size_t kIdleSteps = sizeof kIdleMs / sizeof kIdleMs[0];
// Time after which a server has started. Most pages of the program file that are mapped then served the start only.
constexpr uint64_t kStartMs = 1000;

struct Range {
  uintptr_t from;
  uintptr_t to;
};

// Finds the segments of the program that are never writable: code and constants.
int findConstantSegments(struct dl_phdr_info* program, size_t, void* found) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < program->dlpi_phnum; i++) {
    const auto& segment = program->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W)) continue;
    const uintptr_t from = program->dlpi_addr + segment.p_vaddr;
    static_cast<std::vector<Range>*>(found)->push_back(
        {from & ~(page - 1), (from + segment.p_memsz + page - 1) & ~(page - 1)});
  }
  return 1;  // the first object is the program itself
}

// Unmaps the pages of the program file. The kernel maps a page from its cache again when the program uses it.
// Skips anonymous memory: Node can move its code there (--use-largepages).
void releaseProgramPages() {
  std::vector<Range> segments;
  dl_iterate_phdr(findConstantSegments, &segments);
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return;
  char line[512];
  while (fgets(line, sizeof line, maps)) {
    uintptr_t from, to;
    char permissions[5];
    unsigned long inode;
    if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &from, &to, permissions, &inode) != 4) continue;
    if (inode == 0 || permissions[1] == 'w' || permissions[3] != 'p') continue;
    for (const Range& segment : segments) {
      if (from < segment.from || to > segment.to) continue;
      // A failure leaves the pages mapped.
      madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    }
  }
  fclose(maps);
}

}  // namespace

void MemoryTrimmer::enable(napi_value onIdle) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 32 * 1024 * 1024);
#endif
  if (onIdle_) return;
  onIdle_ = ValueRef(loop_.env(), onIdle);
  startTimer(kStartMs);
}

void MemoryTrimmer::noteActivity() {
  if (!onIdle_) return;
  lastActivityNs_ = nowNs();
  next_ = 0;
  if (!timerRunning_) onTimer();
}

void MemoryTrimmer::startTimer(uint64_t ms) {
  timerRunning_ = true;
  uv_timer_start(
      timer_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->trimmer().onTimer(); }, ms, 0);
}

void MemoryTrimmer::onTimer() {
  timerRunning_ = false;
  if (!hasStarted_) {
    hasStarted_ = true;
    releaseProgramPages();
  }
  if (lastActivityNs_ == 0) return;
  if ((nowNs() - lastActivityNs_) / kNsPerMs >= kIdleMs[next_]) {
    next_++;
    trim();
  }
  // The callback may have caused new activity, or ended the loop.
  if (!onIdle_ || next_ == kIdleSteps || timerRunning_) return;
  const int64_t remainingMs = kIdleMs[next_] - (nowNs() - lastActivityNs_) / kNsPerMs;
  startTimer(static_cast<uint64_t>(std::max<int64_t>(remainingMs, 1)));
}

void MemoryTrimmer::trim() {
  {
    HandleScope scope(loop_.env());
    loop_.call(onIdle_.get(), 0, nullptr);
  }
  releaseFreeMemory();
  // Not earlier, because a client that returns soon would wait for the pages.
  if (next_ == kIdleSteps) releaseProgramPages();
}

void MemoryTrimmer::releaseFreeMemory() {
  loop_.blocks().clear();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void MemoryTrimmer::close() { onIdle_.reset(); }

}  // namespace procwire
