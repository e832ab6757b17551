// The processes that outlive their server, as the keeper has them: their descriptors, and the memory that it shares
// with the server (kept-memory.h).
#ifndef PROCWIRE_KEPT_PROCESS_H
#define PROCWIRE_KEPT_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "fds.h"
#include "keeper-packets.h"
#include "kept-memory.h"

struct kept {
  uint64_t id;
  int fds[KEPT_FDS];
  struct kept_header* memory;
  size_t bytes;
  struct watch end, poke, input;
  int waits_for_room;  // its input is full: EPOLLOUT is asked for
  int is_traced;       // it has ended, but a debugger has its status
  struct kept *next, *previous;
};

// The list of all.
extern struct kept* first_kept;
struct kept* find_kept(uint64_t id);

// Takes a process with its descriptors. -1: it cannot be kept, so it is ended and the server told; nothing is taken.
int keep(uint64_t id, uint64_t which, const int* fds, unsigned count);
// Writes what the server has put in, as far as it goes; the rest waits until there is room.
void write_input(struct kept* kept);
// The server has put something in, or wants its input closed.
void take_poke(struct kept* kept);
// Records its status. It stays a zombie, so that its pid is not reused until the server has read all its output.
void note_end(struct kept* kept);
// Its end is not recorded yet.
int is_running(const struct kept* kept);
// Its pid is its own: it is not reaped.
int has_pid(const struct kept* kept);
// It has ended and its output was read to the end: everything but its memory can be released.
void close_kept(struct kept* kept);
void forget_kept(struct kept* kept);

// Those whose status a debugger has: looks again.
void look_at_traced(void);
int is_any_traced(void);

// Kills the process and its group at once, and forgets it.
void kill_kept(struct kept* kept);
// Ends all: first gracefully.
void end_all_kept(void);

#endif
