// A Landlock domain for the command of a sandbox, in addition to its mounts: it may write only below some paths. A
// mount that is read-only still allows writing to its named pipes and devices; the domain does not.
#ifndef PROCWIRE_PROGRAMS_LANDLOCK_DOMAIN_H
#define PROCWIRE_PROGRAMS_LANDLOCK_DOMAIN_H

// Lets this process and its descendants write only below `paths`, and to the standard streams that it has. Where the
// kernel supports it, they also reach no abstract socket and no process outside. Does nothing on a kernel without
// Landlock version 2, because version 1 rejects each rename to another directory.
void enter_landlock_domain(char* const* paths, int count);

#endif
