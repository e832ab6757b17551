// The child between vfork and exec.
//
// It shares the memory of its parent, whose other threads keep running, or has a copy of it, in which another thread
// may hold a lock. So it must not allocate, lock, or call library functions that might. It uses only plain system
// calls, and reports a failure only through `failChild`.
#include "process/child-exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/syscall-numbers.h"

namespace procwire {
namespace {

// Disables sanitizer checks, which do not know the stack of the child.
#define PLAIN_CALLS_ONLY __attribute__((no_sanitize("address", "undefined")))

constexpr int kSignals = 64;

[[noreturn]] PLAIN_CALLS_ONLY void failChild(ExecPlan* plan, const char* call, int err) {
  plan->failure.err = err;
  plan->failure.syscall = call;
  // The parent can read the name by its address, even if the child's memory is a copy.
  const ExecFailure failure = {err, call};
  if (plan->failureFd >= 0) syscall(SYS_write, plan->failureFd, &failure, sizeof failure);
  for (;;) syscall(SYS_exit_group, 127);
}

// Closes all descriptors from `first` on, even if close_range is missing or forbidden.
PLAIN_CALLS_ONLY void closeInherited(int first, bool useLegacySyscalls) {
  if (!useLegacySyscalls && syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, 0u) == 0) return;
  struct Entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
  };
  int dir = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir < 0) {
    for (int fd = first; fd < 65536; fd++) syscall(SYS_close, fd);
    return;
  }
  alignas(8) char buffer[2048];
  for (;;) {
    long length = syscall(SYS_getdents64, dir, buffer, sizeof buffer);
    if (length <= 0) break;
    for (long at = 0; at < length;) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->length;
      int fd = 0;
      const char* digit = entry->name;
      for (; *digit >= '0' && *digit <= '9'; digit++) fd = fd * 10 + (*digit - '0');
      if (*digit == 0 && digit != entry->name && fd >= first && fd != dir) syscall(SYS_close, fd);
    }
  }
  syscall(SYS_close, dir);
}

PLAIN_CALLS_ONLY void resetSignals(uint64_t signals) {
  // All zero is SIG_DFL without flags in every layout of the kernel's struct. Handlers are reset before the mask,
  // because a handler of the parent would run here, in the parent's memory.
  const unsigned long defaults[8] = {};
  for (int number = 1; number <= kSignals; number++)
    if (signals >> (number - 1) & 1) syscall(SYS_rt_sigaction, number, defaults, nullptr, size_t{8});
  const unsigned long none[2] = {};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, none, nullptr, size_t{8});
}

// The kernel's struct landlock_ruleset_attr as of Linux 6.12.
struct LandlockRules {
  uint64_t fileAccess, networkAccess, scoped;
};
constexpr uint64_t kScopeAbstractSockets = 1;
constexpr uint64_t kScopeSignals = 2;
constexpr unsigned kLandlockVersion = 1;

// Defence in depth: the process starts even if the kernel does not support it. `sandbox-listeners` applies rules for
// files inside the sandbox, because a domain with such rules cannot mount.
PLAIN_CALLS_ONLY void enterLandlockDomain() {
  const LandlockRules rules = {0, 0, kScopeAbstractSockets | kScopeSignals};
  const long ruleset = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0u);
  if (ruleset < 0) return;
  if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) syscall(SYS_landlock_restrict_self, ruleset, 0u);
  syscall(SYS_close, ruleset);
}

}  // namespace

uint64_t ignoredSignals() {
  static const uint64_t ignored = [] {
    uint64_t found = 0;
    for (int number = 1; number <= kSignals; number++) {
      // The handler is the first word in every layout of the kernel's struct.
      uintptr_t action[8] = {};
      if (syscall(SYS_rt_sigaction, number, nullptr, action, size_t{8}) == 0 &&
          action[0] == reinterpret_cast<uintptr_t>(SIG_IGN))
        found |= uint64_t{1} << (number - 1);
    }
    return found;
  }();
  return ignored;
}

int landlockAbi() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, size_t{0}, kLandlockVersion);
  return version < 0 ? 0 : static_cast<int>(version);
}

PLAIN_CALLS_ONLY int runChild(void* argument) {
  ExecPlan* plan = static_cast<ExecPlan*>(argument);
  plan->ran = true;
  if (syscall(SYS_setsid) < 0) failChild(plan, "setsid", errno);
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) failChild(plan, "prctl", errno);
  // The parent may have died before PR_SET_PDEATHSIG took effect.
  if (syscall(SYS_getppid) != plan->parent) failChild(plan, "getppid", ESRCH);
  if (plan->terminal && syscall(SYS_ioctl, plan->stdinFd, TIOCSCTTY, 0) < 0) failChild(plan, "ioctl", errno);
  const long entered = plan->directory >= 0 ? syscall(SYS_fchdir, plan->directory) : syscall(SYS_chdir, plan->cwd);
  if (entered < 0) failChild(plan, "chdir", errno);
  for (int at = 0; at < plan->cgroupCount; at++)
    if (syscall(SYS_write, plan->cgroups[at], "0", size_t{1}) < 0) failChild(plan, "cgroup", errno);
  // All three are above 2, so no dup3 overwrites a descriptor that is still needed. dup3 to another number clears
  // close-on-exec.
  if (syscall(SYS_dup3, plan->stdinFd, 0, 0) < 0) failChild(plan, "dup2", errno);
  if (syscall(SYS_dup3, plan->stdoutFd, 1, 0) < 0) failChild(plan, "dup2", errno);
  if (syscall(SYS_dup3, plan->stderrFd, 2, 0) < 0) failChild(plan, "dup2", errno);
  for (int at = 0; at < plan->inheritedFdCount; at++)
    if (syscall(SYS_dup3, plan->inheritedFds[at], 3 + at, 0) < 0) failChild(plan, "dup2", errno);
  int firstUnused = 3 + plan->inheritedFdCount;
  if (plan->failureFd >= 0) {
    if (syscall(SYS_dup3, plan->failureFd, firstUnused, O_CLOEXEC) < 0) failChild(plan, "dup3", errno);
    plan->failureFd = firstUnused++;
  }
  closeInherited(firstUnused, plan->useLegacySyscalls);
  resetSignals(plan->resetSignals);
  for (int at = 0; at < plan->limitCount; at++)
    if (syscall(SYS_prlimit64, 0, plan->limits[at].resource, plan->limits[at].values, nullptr) < 0)
      failChild(plan, "setrlimit", errno);
  for (int at = 0; at < plan->tagLimitCount; at++)
    if (syscall(SYS_prlimit64, 0, plan->tagLimits[at].resource, plan->tagLimits[at].values, nullptr) < 0)
      plan->isUntagged = plan->isUntagged || at == 0;

  if (plan->landlock) enterLandlockDomain();

  // Searches like execvp, except that a file that the kernel cannot execute is never passed to a shell.
  int denied = 0;
  int err = ENOENT;
  for (const char* const* candidate = plan->candidates; *candidate; candidate++) {
    syscall(SYS_execve, *candidate, plan->argv, plan->envp);
    err = errno;
    if (err == EACCES) denied = err;
    else if (err != ENOENT && err != ENOTDIR && err != ESTALE && err != ENODEV && err != ETIMEDOUT) break;
    else if (denied) err = denied;
  }
  failChild(plan, "execve", err);
}

}  // namespace procwire
