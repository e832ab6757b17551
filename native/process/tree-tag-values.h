// Encoding of tree tags: value range, server prefix, serial number.
//
// In C, because the sentinel (native/programs/sentinel.c) searches for the tags of a server that has died, and the
// supervisor (native/programs/supervisor-orphans.c) for the tags of persistent processes.
#ifndef PROCWIRE_PROCESS_TREE_TAG_VALUES_H
#define PROCWIRE_PROCESS_TREE_TAG_VALUES_H

#include <stdint.h>
#include <sys/types.h>

// Below 2^53 including all added bits, so that a JavaScript number is exact. As a limit in microseconds: 142 years.
#define TAG_BASE (1ull << 52)
#define TAG_SERVER_BITS 27
// The low bits number the processes of one server.
#define TAG_SERIAL_BITS 24

static inline int is_tree_tag(uint64_t value) { return value >= TAG_BASE && value < 2 * TAG_BASE; }

// Returns the first tag of the server with this pid and start time (ticks, as in /proc). The pair is unique on a host.
// Two servers of a host have the same tags, and mistake each other's orphans for their own, with a probability of
// 2^-TAG_SERVER_BITS. Any process that knows pid and start time can compute the tags.
static inline uint64_t first_tag_of(pid_t pid, uint64_t start_time) {
  // Multipliers and shifts of splitmix64, which spreads small differences over all bits.
  uint64_t mixed = start_time * 0x9e3779b97f4a7c15ull + (uint64_t)pid;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  mixed ^= mixed >> 31;
  return TAG_BASE + ((mixed & ((1ull << TAG_SERVER_BITS) - 1)) << TAG_SERIAL_BITS);
}

// Returns the tag check, which is stored in a second limit. Tag and tag check have a constant sum, so of two different
// tags one has the higher tag and the other one the higher tag check. Only root can raise a limit. A process therefore
// cannot copy both values of another tag.
static inline uint64_t tag_check_of(uint64_t tag) { return 8 * TAG_BASE - tag; }

static inline int is_tag_of(uint64_t value, uint64_t first) {
  return value >> TAG_SERIAL_BITS == first >> TAG_SERIAL_BITS;
}

#endif
