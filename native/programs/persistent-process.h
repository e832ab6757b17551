// Persistent processes of the supervisor: their descriptors and the state segment shared with the server
// (state-segment-layout.h).
#ifndef PROCWIRE_PROGRAMS_PERSISTENT_PROCESS_H
#define PROCWIRE_PROGRAMS_PERSISTENT_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "epoll-watch.h"
#include "state-segment-layout.h"
#include "supervisor-protocol.h"

struct persistent_process {
  uint64_t id;
  int fds[PERSIST_FD_COUNT];
  struct segment_header* header;
  size_t segment_bytes;
  struct watch exit_watch, wake_watch, input_watch;
  int is_input_full;  // stdin is full, EPOLLOUT is registered
  int is_traced;      // exited, but a tracer holds the exit status
  struct persistent_process *next, *previous;
};

// List of all persistent processes.
extern struct persistent_process* first_persistent;
struct persistent_process* find_persistent(uint64_t id);

// Adds a process and takes ownership of its descriptors. Returns -1 without taking them if the process cannot be
// persisted: it is killed, and the caller notifies the server.
int add_persistent(uint64_t id, uint64_t which, const int* fds, unsigned count);
// Adds a process of the supervisor that this one replaces, whose resources may be released already. Returns NULL, or
// the reason why the process cannot be restored; then the descriptors stay open.
const char* restore_persistent(uint64_t id, const int fds[PERSIST_FD_COUNT]);
// Writes input from the ring as far as possible. The rest waits until stdin is writable.
void write_input(struct persistent_process* process);
// Called when the server added input or requested to close stdin.
void handle_wake(struct persistent_process* process);
// Records the exit status. The process stays a zombie, so that its pid is not reused before the server has read all
// output.
void record_exit(struct persistent_process* process);
// Reports whether the exit is not recorded yet.
int is_running(const struct persistent_process* process);
// Reports whether the process is not reaped yet, so that its pid is valid.
int has_pid(const struct persistent_process* process);
// Releases everything but the segment of a process that has exited and whose output was read completely.
void release_resources(struct persistent_process* process);
void remove_persistent(struct persistent_process* process);

// Re-checks processes whose exit status is held by a tracer.
void recheck_traced(void);
int is_any_traced(void);

// Kills the process and its process group, and removes it.
void kill_persistent(struct persistent_process* process);
// Terminates all processes: SIGTERM, grace period, SIGKILL.
void terminate_all_persistent(void);

#endif
