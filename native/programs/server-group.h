// A cgroup (version 2) around a server and everything it starts, where the kernel gives one: nobody leaves it by
// forking, by a session of its own or by closing files, and one write kills all that are in it.
//
// The group is locked (flock) by the watchdogs and the guard, all of which share one open directory. When the last of
// them is gone, so is the lock: whoever gets it then knows that the group is deserted, and ends it.
#ifndef PROCWIRE_SERVER_GROUP_H
#define PROCWIRE_SERVER_GROUP_H

#include <sys/types.h>

struct server_group {
  int parent;  // the directory it was made in; -1: there is no group
  int fd;      // its own directory, locked
  char name[64];
};

// Makes one below the cgroup of this process and locks it. Without one (no cgroup 2, no right to add to it, or limits
// that programs would no longer find) `parent` and `fd` are -1.
void make_group(struct server_group* group);

// As fork(), with the child in the group where there is one.
pid_t fork_into_group(const struct server_group* group);

// Kills every process in it.
void kill_group(const struct server_group* group);

// Waits until no process is in it, for a few seconds at most, and removes it.
void remove_group(const struct server_group* group);

// Ends the deserted groups beside this one.
void end_deserted_groups(const struct server_group* group);

#endif
