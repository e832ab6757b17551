// The server below the keeper: its start, its hand-over to the next one, its deaths and its end.
#ifndef PROCWIRE_SERVER_LIFE_H
#define PROCWIRE_SERVER_LIFE_H

#include <signal.h>
#include <sys/types.h>

// After this many deaths within a minute the next server would die too.
#define GIVES_UP_AFTER 5
// The most a test may ask for.
#define MOST_DEATHS 1024

// What is run, with this signal mask.
void set_server(char** command, const sigset_t* mask, unsigned gives_up_after);
void start_server(void);
// 0 when there is none.
pid_t server_pid(void);

void server_is_ready(void);
// To a server program that is looked up anew.
void hand_over(void);
// Everything is to end: -1 until the server has ended, else how to end. `is_told`: the server knows already.
int end_server(int is_told);
// Looks whether it has ended: -1 to go on with it or the next one, else how to end.
int look_at_server(void);

// What is due: killing one that does not leave, replacing one that hangs, starting the next.
void on_server_time(void);
// When `on_server_time` has something to do; 0: never.
long long server_time_ms(void);

#endif
