// Children of the supervisor that are neither its server nor persistent. Orphans of all processes below the supervisor
// are reparented to it.
#ifndef PROCWIRE_PROGRAMS_SUPERVISOR_ORPHANS_H
#define PROCWIRE_PROGRAMS_SUPERVISOR_ORPHANS_H

// Reaps dead orphans. Some are deferred until no start is in flight (`reap_deferred`).
void reap_orphans(void);
void reap_deferred(void);

// Kills every child that is neither the server nor part of a persistent process tree, with all descendants.
void kill_non_persistent(void);

#endif
