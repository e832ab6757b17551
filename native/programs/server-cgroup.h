// A cgroup (version 2) around a server and everything it starts. A process cannot leave it by forking, by a new POSIX
// session or by closing files. One write kills all processes in it.
//
// The watchdogs and the sentinel hold a lock (flock) on the cgroup through one shared open directory. The lock is free
// once all of them have exited. A process that acquires it then knows that the cgroup is abandoned, and kills it.
#ifndef PROCWIRE_PROGRAMS_SERVER_CGROUP_H
#define PROCWIRE_PROGRAMS_SERVER_CGROUP_H

#include <sys/types.h>

struct server_cgroup {
  int parent;  // parent directory; -1: no cgroup
  int fd;      // directory of the cgroup, locked
  char name[64];
};

// Creates and locks a cgroup below the cgroup of this process. Sets `parent` and `fd` to -1 if that is impossible: no
// cgroup 2, no permission, or limits that language runtimes would no longer find.
void create_server_cgroup(struct server_cgroup* cgroup);

// Like fork(), with the child in the cgroup if there is one.
pid_t fork_into_cgroup(const struct server_cgroup* cgroup);

// Kills every process in the cgroup.
void kill_cgroup(const struct server_cgroup* cgroup);

// Waits a few seconds at most until the cgroup is empty, and removes it.
void remove_cgroup(const struct server_cgroup* cgroup);

// Kills abandoned sibling cgroups.
void kill_abandoned_cgroups(const struct server_cgroup* cgroup);

#endif
