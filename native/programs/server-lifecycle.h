// The server below the supervisor: start, handoff, crashes and exit.
#ifndef PROCWIRE_PROGRAMS_SERVER_LIFECYCLE_H
#define PROCWIRE_PROGRAMS_SERVER_LIFECYCLE_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

// Upper bound of `--give-up-after` (src/cli/options/serve-options.ts).
#define MAX_CRASH_LIMIT 1024
// Default of the longest restart delay.
#define MAX_BACKOFF_MS 10000

// State that a replaced supervisor passes on (supervisor-state.h). The layout is part of SUPERVISOR_STATE_VERSION.
struct server_history {
  char instance[16];                 // random id of the first supervisor
  uint64_t generation;               // number of servers started
  uint64_t signal_mask;              // of all servers; bit N - 1: signal N
  int64_t backoff_ms;                // delay before the next restart
  int64_t give_up_after;             // crashes within a minute; 0: never
  uint64_t crash_count;              // number of crashes ever
  int64_t crashes[MAX_CRASH_LIMIT];  // ring of the times of the last crashes
};

struct server_options {
  char** command;
  const sigset_t* mask;
  long max_backoff_ms;
  // Asks the command for the current supervisor before each restart, and replaces this one if it differs.
  int is_upgradable;
};

// Sets the command and signal mask of all servers.
void configure_server(const struct server_options* options);
// Continues with the servers of the supervisor that this one replaces.
void restore_server_history(const struct server_history* history);
const struct server_history* server_history(void);
void start_server(void);
// Sets the number of crashes within a minute after which the supervisor ends everything; 0: never.
void set_give_up_after(uint64_t crashes);
// Returns 0 if no server runs.
pid_t server_pid(void);

void on_server_ready(void);
// Hands off to a new server. Its executable is resolved again. Ends a restart delay.
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
