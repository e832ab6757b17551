// Replaces the supervisor in place: the executable that is installed now continues with the same pid, children and
// descriptors.
#ifndef PROCWIRE_PROGRAMS_SUPERVISOR_UPGRADE_H
#define PROCWIRE_PROGRAMS_SUPERVISOR_UPGRADE_H

#include <signal.h>

// Asks the command of the server for the path of its supervisor. If that is another file than the running one, and it
// can read the state of this supervisor, executes it and does not return. Requires that no server runs. `mask`: signal
// mask of all programs that the supervisor starts.
void upgrade_supervisor(char** command, const sigset_t* mask, long max_backoff_ms);

#endif
