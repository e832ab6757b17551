// A mark is a resource limit that limits nothing: inherited by fork and exec, and readable by everybody.
// Environments stay exact, nothing is left to clean up, and it takes one system call and no privilege.
//
// It is the limit on file locks, which the kernel has not looked at since Linux 2.4, so that no program has a reason to
// set it. One that does so was made to hide from us, and is ended for it once it is an orphan
// (src/local/tree-kill.ts).
//
// The hard limits keep a process from taking the mark of another one: they can be lowered and not raised (but by root).
// The limit on the time a realtime thread may run without sleeping, which limits nothing above a century, has the other
// half of the mark (witness_of). Programs with realtime threads lower that one, so it alone says nothing.
//
// A program whose own limits are not free, because another one above it marks, leaves them to its descendants and uses
// the limit on resident memory, without effect since Linux 2.4 as well. Its hard limit is not touched, since scripts do
// say `ulimit -m unlimited`; so this mark can be changed to another.
#include "process/mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "core/small-file.h"
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
constexpr Carrier kResident = {RLIMIT_RSS, "Max resident set"};
constexpr Carrier kWitness = {RLIMIT_RTTIME, "Max realtime timeout"};

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
  bool isFree() const { return soft == kUnlimited; }
};

const Carrier& carrier() {
  static const Carrier& chosen = OwnLimit(RLIMIT_LOCKS).isFree() ? kLocks : kResident;
  return chosen;
}

bool hasWitness() {
  static const bool has = &carrier() == &kLocks && OwnLimit(kWitness.resource).isFree();
  return has;
}

uint64_t firstMark() {
  static const uint64_t first = [] {
    ProcessEntry own;
    readEntry(getpid(), own);
    return first_mark_of(getpid(), own.startTime);
  }();
  return first;
}

// For a process of another user: its limits as /proc shows them to everybody. Unlimited when it is gone.
uint64_t limitInProc(pid_t pid, const char* name) {
  char path[32];
  std::string text;
  snprintf(path, sizeof path, "/proc/%d/limits", pid);
  if (!readSmallFile(AT_FDCWD, path, text)) return kUnlimited;
  const char* line = strstr(text.c_str(), name);
  if (!line) return kUnlimited;
  const char* value = line + strlen(name);
  value += strspn(value, " ");
  return *value == 'u' ? kUnlimited : strtoull(value, nullptr, 10);
}

uint64_t limitOf(pid_t pid, const Carrier& carrier) {
  uint64_t values[2];
  const bool told = syscall(SYS_prlimit64, pid, carrier.resource, nullptr, values) == 0;
  return told ? values[0] : limitInProc(pid, carrier.nameInProc);
}

}  // namespace

uint64_t nextMark(Marking& marking) {
  static std::atomic<uint64_t> serial{0};
  const OwnLimit own(carrier().resource);
  const uint64_t mark = firstMark() + (serial++ & ((uint64_t{1} << MARK_SERIAL_BITS) - 1));
  if (!own.canCarry(mark)) return 0;
  marking.count = hasWitness() ? 2 : 1;
  marking.limits[0] = {carrier().resource, {mark, hasWitness() ? mark : own.hard}};
  marking.limits[1] = {kWitness.resource, {witness_of(mark), witness_of(mark)}};
  return mark;
}

double markOf(pid_t pid) {
  const uint64_t mark = limitOf(pid, carrier());
  if (!is_mark(mark)) return 0;
  // Without a limit there it is one that was started before there were witnesses, or has a user who may change both.
  const uint64_t witness = hasWitness() ? limitOf(pid, kWitness) : kUnlimited;
  const bool isWhole = witness == kUnlimited || witness == witness_of(mark);
  return isWhole ? static_cast<double>(mark) : -static_cast<double>(mark);
}

}  // namespace procwire
