// Descriptors of a process that is about to start.
#ifndef PROCWIRE_PROCESS_CHILD_STDIO_H
#define PROCWIRE_PROCESS_CHILD_STDIO_H

#include <string>
#include <vector>

#include "core/fd.h"
#include "process/spawn.h"

namespace procwire {

struct ChildFds {
  UniqueFd in;
  UniqueFd out;
  UniqueFd err;
  UniqueFd failurePipe[2];  // read end, write end; used only if the child's memory may be a copy
  std::vector<UniqueFd> inheritedFds;
  std::vector<UniqueFd> cgroups;
};

// Records the failed call and errno in the request. Always returns false.
bool failed(SpawnRequest& request, const char* call, const std::string& path);

// Return false with the failure recorded in the request.
bool openPipes(SpawnRequest& request, ChildFds& child);
bool openTerminal(SpawnRequest& request);
bool copyInheritedFds(SpawnRequest& request, ChildFds& child);
bool openCgroups(SpawnRequest& request, ChildFds& child);
bool openFailurePipe(SpawnRequest& request, ChildFds& child);

}  // namespace procwire

#endif
