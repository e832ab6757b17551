// A tree tag is a resource limit without effect: inherited by fork and exec, and readable by every process. It leaves
// the environment unchanged, needs no cleanup, one system call and no privilege.
//
// It uses the limit on file locks, which the kernel has ignored since Linux 2.4, so that no program has a reason to set
// it. A process that sets it tries to hide from the server and is killed once it is an orphan
// (src/local/tree/tree-members.ts).
//
// Hard limits prevent a process from taking another tag: they can be lowered, but only root can raise them. The limit
// on realtime CPU time, which has no effect above a century, carries the tag check (tag_check_of). Programs with
// realtime threads lower that limit, so the check alone proves nothing.
//
// A server below another server finds these limits in use, leaves them to its descendants, and uses the limit on
// resident memory, which has also been without effect since Linux 2.4. It does not change the hard limit, because
// scripts run `ulimit -m unlimited`. A process can therefore change this kind of tag.
#include "process/tree-tag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "core/read-file.h"
#include "process/process-table.h"
#include "process/tree-tag-values.h"

namespace procwire {
namespace {

// The kernel's RLIM64_INFINITY, which not every C library defines.
constexpr uint64_t kUnlimited = ~uint64_t{0};

struct Carrier {
  int resource;
  const char* nameInProc;
};

constexpr Carrier kLocks = {RLIMIT_LOCKS, "Max file locks"};
constexpr Carrier kResident = {RLIMIT_RSS, "Max resident set"};
constexpr Carrier kTagCheck = {RLIMIT_RTTIME, "Max realtime timeout"};

struct OwnLimit {
  uint64_t soft = 0;
  uint64_t hard = 0;

  explicit OwnLimit(int resource) {
    uint64_t values[2];
    if (syscall(SYS_prlimit64, 0, resource, nullptr, values) < 0) return;
    soft = values[0];
    hard = values[1];
  }

  // A parent may have set a real limit here, which must stay.
  bool canCarry(uint64_t treeTag) const { return hard >= treeTag && (soft == kUnlimited || is_tree_tag(soft)); }
  bool isFree() const { return soft == kUnlimited; }
};

const Carrier& carrier() {
  static const Carrier& chosen = OwnLimit(RLIMIT_LOCKS).isFree() ? kLocks : kResident;
  return chosen;
}

bool hasTagCheck() {
  static const bool has = &carrier() == &kLocks && OwnLimit(kTagCheck.resource).isFree();
  return has;
}

uint64_t firstTag() {
  static const uint64_t first = [] {
    ProcessEntry own;
    readEntry(getpid(), own);
    return first_tag_of(getpid(), own.startTime);
  }();
  return first;
}

// Reads a limit of another user's process from /proc. Returns kUnlimited if the process does not exist.
uint64_t limitInProc(pid_t pid, const char* name) {
  char path[32];
  std::string text;
  snprintf(path, sizeof path, "/proc/%d/limits", pid);
  if (!readWholeFile(AT_FDCWD, path, text)) return kUnlimited;
  const char* line = strstr(text.c_str(), name);
  if (!line) return kUnlimited;
  const char* value = line + strlen(name);
  value += strspn(value, " ");
  return *value == 'u' ? kUnlimited : strtoull(value, nullptr, 10);
}

uint64_t limitOf(pid_t pid, const Carrier& carrier) {
  uint64_t values[2];
  const bool isReadable = syscall(SYS_prlimit64, pid, carrier.resource, nullptr, values) == 0;
  return isReadable ? values[0] : limitInProc(pid, carrier.nameInProc);
}

}  // namespace

uint64_t nextTreeTag(TagLimits& tagLimits) {
  static std::atomic<uint64_t> serial{0};
  const OwnLimit own(carrier().resource);
  const uint64_t treeTag = firstTag() + (serial++ & ((uint64_t{1} << TAG_SERIAL_BITS) - 1));
  if (!own.canCarry(treeTag)) return 0;
  tagLimits.count = hasTagCheck() ? 2 : 1;
  tagLimits.limits[0] = {carrier().resource, {treeTag, hasTagCheck() ? treeTag : own.hard}};
  tagLimits.limits[1] = {kTagCheck.resource, {tag_check_of(treeTag), tag_check_of(treeTag)}};
  return treeTag;
}

FoundTag readTreeTag(pid_t pid) {
  const uint64_t treeTag = limitOf(pid, carrier());
  if (!is_tree_tag(treeTag)) return {};
  // No tag check is set if the process started before tag checks existed, or if its user may change both limits.
  const uint64_t tagCheck = hasTagCheck() ? limitOf(pid, kTagCheck) : kUnlimited;
  return {treeTag, tagCheck != kUnlimited && tagCheck != tag_check_of(treeTag)};
}

}  // namespace procwire
