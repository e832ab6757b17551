// Which numbers are marks, and whose. In C, since the guard beside the watchdogs (native/programs/watchdog.c) looks for
// the marks of a server that is gone.
#ifndef PROCWIRE_MARK_NUMBERS_H
#define PROCWIRE_MARK_NUMBERS_H

#include <stdint.h>
#include <sys/types.h>

// Below 2^53 with all that is added, so that JavaScript's numbers hold it. As microseconds: 142 years.
#define MARK_FIRST (1ull << 52)
#define MARK_PROGRAM_BITS 27
// The low bits count the processes of one program.
#define MARK_SERIAL_BITS 24

static inline int is_mark(uint64_t value) { return value >= MARK_FIRST && value < 2 * MARK_FIRST; }

// The first mark of the program with this number that started at this time (in ticks, as /proc has it). No two programs
// of a machine have both, so two of them do not take each other's orphans for their own; and whoever knows a program
// can tell its marks without asking it.
static inline uint64_t first_mark_of(pid_t pid, uint64_t start_time) {
  // The multipliers and shifts are those of splitmix64, which spreads small differences over all bits.
  uint64_t mixed = start_time * 0x9e3779b97f4a7c15ull + (uint64_t)pid;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  mixed ^= mixed >> 31;
  return MARK_FIRST + ((mixed & ((1ull << MARK_PROGRAM_BITS) - 1)) << MARK_SERIAL_BITS);
}

// The other half of a mark, in a second limit. Nobody but root can raise a limit, and of two halves that make another
// mark one is always higher: so whoever has a half of another process's mark has not got the other.
static inline uint64_t witness_of(uint64_t mark) { return 8 * MARK_FIRST - mark; }

static inline int is_mark_of(uint64_t value, uint64_t first) {
  return value >> MARK_SERIAL_BITS == first >> MARK_SERIAL_BITS;
}

#endif
