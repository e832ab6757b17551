// A cgroup (version 2) for each started program and all that it starts, where this program has one of its own
// (native/programs/server-group.h). Nobody leaves it by forking, by a session of its own or by taking the mark of
// another process, and one write kills all that are in it.
//
// A group that was left empty is given to the next program, since making one takes half as long as starting a program.
// Except after a kill: the kernel compares how often the groups of parent and child were killed, and kills a child that
// is born into one where the two differ (seen on Linux 6.18).
#ifndef PROCWIRE_TREE_GROUP_H
#define PROCWIRE_TREE_GROUP_H

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace procwire {

// Which group a program got. Once the group is another program's the number means nothing, so whoever has it may keep
// it. A kept program's is its mark.
using GroupLease = uint64_t;

// An open group for a program that is about to start.
struct TakenGroup {
  GroupLease lease = 0;  // 0: none
  int fd = -1;
  int err = 0;  // why there is none although groups can be made here; 0 where they cannot
};

// Makes groups in this directory from now on. Whatever an earlier program has left there is ended and removed, except
// the groups of kept programs with these marks. 0, or the errno.
int openTreeGroups(const std::string& directory, const std::vector<double>& keptMarks);

// `keptMark` is 0 for a program that is not kept.
TakenGroup takeTreeGroup(uint64_t keptMark);

// The program did not start there: its group is removed.
void dropTreeGroup(GroupLease lease);

// The program has ended. What it left keeps the group; else the next one gets it.
void leaveTreeGroup(GroupLease lease);

// The living processes in it and below it.
std::vector<pid_t> treeGroupPids(GroupLease lease);

void killTreeGroup(GroupLease lease);

// Makes one group ahead. False when there are enough, or none can be made.
bool makeTreeGroupAhead();

}  // namespace procwire

#endif
