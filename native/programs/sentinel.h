// The sentinel of a server: a process without children and with its own POSIX session. When both watchdogs and the
// server are killed at once, it kills all processes in the server's cgroup, and all processes with a tree tag of the
// server (tree-tag-values.h).
#ifndef PROCWIRE_PROGRAMS_SENTINEL_H
#define PROCWIRE_PROGRAMS_SENTINEL_H

#include "server-cgroup.h"

// Waits until both watchdogs and the server have exited, then kills the remaining processes. The inner watchdog writes
// the server's pid to `channel`, which ends when neither watchdog holds it open. Returns the exit code.
int run_sentinel(const struct server_cgroup* cgroup, int channel);

#endif
