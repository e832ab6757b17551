// Tree tags identify the descendants of a process, whatever they do to their sessions, parents and files.
#ifndef PROCWIRE_PROCESS_TREE_TAG_H
#define PROCWIRE_PROCESS_TREE_TAG_H

#include <sys/types.h>

#include <cstdint>

#include "process/child-exec.h"

namespace procwire {

// Limits that carry a tree tag: the tag itself and, if possible, the tag check.
struct TagLimits {
  ResourceLimit limits[2];
  int count = 0;
};

// Returns an unused tree tag and the limits that carry it, or 0 if none can be set.
uint64_t nextTreeTag(TagLimits& tagLimits);

struct FoundTag {
  uint64_t tag = 0;         // 0: the process has none, or does not exist
  bool isTampered = false;  // the tag check does not match: the process changed one of the two
};

FoundTag readTreeTag(pid_t pid);

}  // namespace procwire

#endif
