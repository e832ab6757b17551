// The child's side of starting a process.
#ifndef PROCWIRE_PROCESS_CHILD_EXEC_H
#define PROCWIRE_PROCESS_CHILD_EXEC_H

#include <stdint.h>
#include <sys/types.h>

namespace procwire {

// A resource limit in the layout of the kernel's struct.
struct ResourceLimit {
  int resource;
  uint64_t values[2];  // soft, hard
};

// The failed call and its errno; 0 while nothing has failed.
struct ExecFailure {
  int err;
  const char* syscall;
};

// Everything that the child needs, prepared before it exists.
struct ExecPlan {
  const char* cwd;
  int directory;  // descriptor of the working directory; -1: use `cwd`
  char* const* argv;
  char* const* envp;
  const char* const* candidates;
  int stdinFd;
  int stdoutFd;
  int stderrFd;
  bool terminal;
  // Become descriptors 3, 4 and so on. Their current numbers are higher, so that no dup3 overwrites one of them.
  const int* inheritedFds;
  int inheritedFdCount;
  // Mandatory limits: without them the process must not start.
  const ResourceLimit* limits;
  int limitCount;
  // Limits that carry the tree tag, the tag itself first. The process starts even if they cannot be set.
  const ResourceLimit* tagLimits;
  int tagLimitCount;
  // Descriptors of cgroup.procs files. A process enters a cgroup by writing to its file.
  const int* cgroups;
  int cgroupCount;
  pid_t parent;
  // Applies a Landlock domain if the kernel supports it: no abstract sockets and signals to processes outside.
  bool landlock;
  bool useLegacySyscalls;
  // Signals whose action the child resets: bit N - 1 is signal N.
  uint64_t resetSignals;
  // Write end of the failure pipe, which exec closes; -1 if the child's memory is shared.
  int failureFd;
  // Set by the child.
  volatile bool ran;         // the child runs in this memory, not in a copy
  volatile bool isUntagged;  // the tree tag could not be set
  volatile ExecFailure failure;
};

// Returns the signals that this program ignores, which CLONE_CLEAR_SIGHAND does not reset. Determined once: Node
// ignores SIGPIPE before it loads the addon, and no signal later.
uint64_t ignoredSignals();

// Returns the version of Landlock in this kernel; 0 if it is missing or disabled.
int landlockAbi();

// Runs between vfork and exec on its own stack, in the memory of its parent or in a copy. Takes an ExecPlan and never
// returns.
int runChild(void* plan);

}  // namespace procwire

#endif
