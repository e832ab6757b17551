// The server below the supervisor: start, handoff, crashes and exit.
#ifndef PROCWIRE_PROGRAMS_SERVER_LIFECYCLE_H
#define PROCWIRE_PROGRAMS_SERVER_LIFECYCLE_H

#include <signal.h>
#include <sys/types.h>

// Crashes within a minute after which the supervisor gives up, because the next server would crash too.
#define MAX_CRASHES_PER_MINUTE 5
// Upper bound of the crash limit in tests.
#define MAX_CRASH_LIMIT 1024

// Sets the command and signal mask of all servers.
void configure_server(char** command, const sigset_t* mask, unsigned crash_limit);
void start_server(void);
// Returns 0 if no server runs.
pid_t server_pid(void);

void on_server_ready(void);
// Hands off to a new server. Its executable is resolved again.
void hand_off(void);
// Stops everything. Returns -1 until the server has exited, else the exit code. `is_signaled`: the server already got
// the signal.
int stop_server(int is_signaled);
// Checks whether the server exited. Returns -1 to continue with this server or the next one, else the exit code.
int check_server(void);

// Runs due timers: handoff timeout, liveness timeout, restart delay.
void on_server_timer(void);
// Time of the next timer; 0: none.
long long next_server_timer_ms(void);

#endif
