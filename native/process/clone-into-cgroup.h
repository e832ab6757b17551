// Starts a child in a cgroup. The child shares the memory of its parent until exec.
#ifndef PROCWIRE_PROCESS_CLONE_INTO_CGROUP_H
#define PROCWIRE_PROCESS_CLONE_INTO_CGROUP_H

#include <sys/types.h>

#include <cstddef>

namespace procwire {

// Target cgroup, address for the pidfd, and lowest address and size of the child's stack.
struct CloneIntoCgroupArgs {
  int cgroupFd;
  int* pidfd;
  void* stack;
  size_t stackBytes;
  bool asSibling;  // create a sibling instead of a child
};

// Like clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD), with all signal handlers reset; `run` never returns. Returns -1
// with errno set, ENOSYS on other architectures.
pid_t cloneIntoCgroup(const CloneIntoCgroupArgs& args, int (*run)(void*), void* argument);

}  // namespace procwire

#endif
