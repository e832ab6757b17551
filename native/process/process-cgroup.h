// One cgroup (version 2) per process tree, if the server has its own cgroup (native/programs/server-cgroup.h). A
// process cannot leave it by forking, by a new POSIX session or by copying another tree tag. One write kills the whole
// tree.
//
// Empty cgroups are reused, because creating one takes half as long as starting a process. Killed ones are not: the
// kernel compares the kill counters of the parent's and the child's cgroup and kills a new child if they differ
// (observed on Linux 6.18).
#ifndef PROCWIRE_PROCESS_PROCESS_CGROUP_H
#define PROCWIRE_PROCESS_PROCESS_CGROUP_H

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/fd.h"

namespace procwire {

// Identifies one use of a pooled cgroup. Calls with an expired lease have no effect. The lease of a persistent process
// is its tree tag.
using CgroupLease = uint64_t;

// Descriptors of a cgroup.
struct OpenCgroup {
  UniqueFd directory;
  UniqueFd events;  // cgroup.events
};

// An open cgroup for a process that is about to start.
struct AcquiredCgroup {
  CgroupLease lease = 0;  // 0: none
  std::shared_ptr<const OpenCgroup> cgroup;
  int err = 0;  // errno of a failure; 0 if cgroups are unavailable
};

// Creates cgroups in `directory` from now on. Kills and removes all cgroups of earlier servers, except those of
// persistent processes with these tree tags. Returns 0 or the errno.
int openProcessCgroups(const std::string& directory, const std::vector<double>& persistentTags);

// `persistentTag` is 0 for processes that are not persistent.
AcquiredCgroup acquireCgroup(uint64_t persistentTag);

// Removes the cgroup of a process that did not start.
void discardCgroup(CgroupLease lease);

// Releases the cgroup of an ended process. It is reused once it is empty.
void releaseCgroup(CgroupLease lease);

// Returns the live processes in the cgroup and below.
std::vector<pid_t> cgroupPids(CgroupLease lease);

void killCgroup(CgroupLease lease);

// Creates one cgroup ahead of time. Returns false if there are enough, or none can be created.
bool preallocateCgroup();

}  // namespace procwire

#endif
