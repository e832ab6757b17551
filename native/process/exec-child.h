// The child's side of starting a program.
#ifndef PROCWIRE_EXEC_CHILD_H
#define PROCWIRE_EXEC_CHILD_H

#include <stdint.h>
#include <sys/types.h>

namespace procwire {

// One of the kernel's resource limits, in the layout of its own struct.
struct ResourceLimit {
  int resource;
  uint64_t values[2];  // soft, hard
};

// What the child reports: the failed call and its errno, 0 while nothing has failed.
struct ChildReport {
  int err;
  const char* syscall;
};

// All that the child needs, laid out before it exists.
struct ChildPlan {
  const char* cwd;
  int directory;  // a descriptor of it; -1: `cwd` is looked up
  char* const* argv;
  char* const* envp;
  const char* const* candidates;
  int stdinFd;
  int stdoutFd;
  int stderrFd;
  bool terminal;
  // Become 3, 4 and so on. Each is above all of these numbers.
  const int* passed;
  int passedCount;
  // The program must not start without these.
  const ResourceLimit* limits;
  int limitCount;
  // The limits that carry its mark, the first the mark itself; the program starts even if this cannot be set.
  const ResourceLimit* marking;
  int markingCount;
  // Files (cgroup.procs) that put the process that writes to them into a cgroup.
  const int* cgroups;
  int cgroupCount;
  pid_t parent;
  bool oldCallsOnly;
  // Where the child's memory may be a copy of the parent's: a failure is written here too, and exec closes it. Else -1.
  int reportFd;
  // Set by the child: that it runs in this memory, that it could not be marked, and what failed.
  volatile bool ran;
  volatile bool unmarked;
  volatile ChildReport report;
};

// Runs between vfork and exec, on a stack of its own in its parent's memory (or in a copy of it). Takes a ChildPlan;
// never returns.
int execChild(void* plan);

}  // namespace procwire

#endif
