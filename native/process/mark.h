// The mark by which a process's descendants are known, whatever they do to their sessions, parents and files.
#ifndef PROCWIRE_MARK_H
#define PROCWIRE_MARK_H

#include <sys/types.h>

#include <cstdint>

#include "process/exec-child.h"

namespace procwire {

// A mark that no other process has, and the limit that carries it. 0 where none can be set.
uint64_t nextMark(ResourceLimit& limit);

// The mark of a process; 0 when it has none, or is gone.
uint64_t markOf(pid_t pid);

}  // namespace procwire

#endif
