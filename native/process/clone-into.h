// A child that shares the parent's memory until it execs, born into a cgroup.
#ifndef PROCWIRE_CLONE_INTO_H
#define PROCWIRE_CLONE_INTO_H

#include <sys/types.h>

#include <cstddef>

namespace procwire {

// Where the child gets its pidfd, and the lowest address of its stack with its size.
struct CloneInto {
  int group;
  int* pidfd;
  void* stack;
  size_t stackBytes;
  bool hasOurParent;  // a sibling instead of a child
};

// As clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD): `run` never returns. -1 with errno, ENOSYS also on other
// architectures.
pid_t cloneInto(const CloneInto& asked, int (*run)(void*), void* argument);

}  // namespace procwire

#endif
