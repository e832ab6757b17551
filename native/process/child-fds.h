// What a program that is being started gets as its descriptors, opened before it exists.
#ifndef PROCWIRE_CHILD_FDS_H
#define PROCWIRE_CHILD_FDS_H

#include <string>
#include <vector>

#include "core/fd.h"
#include "process/spawn.h"

namespace procwire {

struct ChildFds {
  int in = -1;
  int out = -1;
  int err = -1;
  int report[2] = {-1, -1};  // read, write; only where the child's memory may be a copy
  std::vector<int> passed;
  std::vector<int> cgroups;

  ~ChildFds() {
    for (int& fd : report) closeFd(fd);
    for (int& fd : cgroups) closeFd(fd);
    for (int& fd : passed) closeFd(fd);
    closeFd(in);
    closeFd(out);
    closeFd(err);
  }
};

// Records in the request what failed, with errno. Always false.
bool failed(SpawnRequest& request, const char* call, const std::string& path);

// Each answers false, with the reason in the request.
bool openPipes(SpawnRequest& request, ChildFds& child);
bool openTerminal(SpawnRequest& request);
bool copyPassed(SpawnRequest& request, ChildFds& child);
bool openCgroups(SpawnRequest& request, ChildFds& child);
bool openReport(SpawnRequest& request, ChildFds& child);

}  // namespace procwire

#endif
