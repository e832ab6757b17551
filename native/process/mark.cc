// A mark is a soft resource limit that limits nothing: inherited by fork and exec, and readable by everybody.
// Environments stay exact, nothing is left to clean up, and it takes one system call and no privilege.
//
// It is the limit on file locks, which the kernel has not looked at since Linux 2.4, so that no program has a reason to
// set it. One that does so was made to hide from us, and is ended for it once it is an orphan
// (src/local/tree-kill.ts). A program that has such a mark itself, because another one above it marks, leaves it to its
// descendants and uses the limit on the time a realtime thread may run without sleeping: above a century, it limits
// nothing either.
#include "process/mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "process/mark-numbers.h"
#include "process/process-tree.h"

namespace procwire {
namespace {

// The kernel's RLIM64_INFINITY, whose name not every C library has.
constexpr uint64_t kUnlimited = ~uint64_t{0};

struct Carrier {
  int resource;
  const char* nameInProc;
};

constexpr Carrier kLocks = {RLIMIT_LOCKS, "Max file locks"};
constexpr Carrier kRealtime = {RLIMIT_RTTIME, "Max realtime timeout"};

struct OwnLimit {
  uint64_t soft = 0;
  uint64_t hard = 0;

  explicit OwnLimit(int resource) {
    uint64_t values[2];
    if (syscall(SYS_prlimit64, 0, resource, nullptr, values) < 0) return;
    soft = values[0];
    hard = values[1];
  }

  // A program above this one may have set a real limit here: that one stays as it is.
  bool canCarry(uint64_t mark) const { return hard >= mark && (soft == kUnlimited || is_mark(soft)); }
  bool isFree() const { return canCarry(2 * MARK_FIRST) && soft == kUnlimited; }
};

const Carrier& carrier() {
  static const Carrier& chosen = OwnLimit(RLIMIT_LOCKS).isFree() ? kLocks : kRealtime;
  return chosen;
}

uint64_t firstMark() {
  static const uint64_t first = [] {
    ProcessEntry own;
    readEntry(getpid(), own);
    return first_mark_of(getpid(), own.startTime);
  }();
  return first;
}

// For a process of another user: its limits as /proc shows them to everybody.
uint64_t limitInProc(pid_t pid, const char* name) {
  char path[32];
  char text[4096];
  snprintf(path, sizeof path, "/proc/%d/limits", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  const char* line = strstr(text, name);
  return line ? strtoull(line + strlen(name), nullptr, 10) : 0;
}

}  // namespace

uint64_t nextMark(ResourceLimit& limit) {
  static std::atomic<uint64_t> serial{0};
  const OwnLimit own(carrier().resource);
  const uint64_t mark = firstMark() + (serial++ & ((uint64_t{1} << MARK_SERIAL_BITS) - 1));
  if (!own.canCarry(mark)) return 0;
  limit = {carrier().resource, {mark, own.hard}};
  return mark;
}

uint64_t markOf(pid_t pid) {
  uint64_t values[2] = {0, 0};
  const bool told = syscall(SYS_prlimit64, pid, carrier().resource, nullptr, values) == 0;
  const uint64_t mark = told ? values[0] : limitInProc(pid, carrier().nameInProc);
  return is_mark(mark) ? mark : 0;
}

}  // namespace procwire
