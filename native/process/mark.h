// The mark by which a process's descendants are known, whatever they do to their sessions, parents and files.
#ifndef PROCWIRE_MARK_H
#define PROCWIRE_MARK_H

#include <sys/types.h>

#include <cstdint>

#include "process/exec-child.h"

namespace procwire {

// The limits that carry a mark: the mark itself, and where it can be set its other half.
struct Marking {
  ResourceLimit limits[2];
  int count = 0;
};

// A mark that no other process has, and what carries it. 0 where none can be set.
uint64_t nextMark(Marking& marking);

// The mark of a process; 0 when it has none, or is gone. Below 0 (the mark, negated) when its other half is not there:
// the process has changed one of the two.
double markOf(pid_t pid);

}  // namespace procwire

#endif
