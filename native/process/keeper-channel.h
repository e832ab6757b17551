// The line to the keeper above this program (programs/keeper.c), where there is one.
#ifndef PROCWIRE_KEEPER_CHANNEL_H
#define PROCWIRE_KEEPER_CHANNEL_H

#include <node_api.h>

#include <cstdint>
#include <vector>

#include "core/loop.h"
#include "programs/keeper-packets.h"
#include "programs/kept-memory.h"

namespace procwire {

// A process that an earlier server started, with its descriptors, -1 where there is none.
struct Inherited {
  uint64_t id;
  int fds[KEPT_FDS];
};

struct Inheritance {
  int listener = -1;
  unsigned version = KEPT_VERSION;  // of the memory of kept processes, as the keeper reads it
  std::vector<Inherited> kept;
};

// Says hello, and waits for everything that earlier servers have left; false with errno set. `count` numbers this
// server among those of its keeper.
bool openKeeper(int fd, unsigned count, uint64_t hungAfterMs, Inheritance& found);

// Tells when the keeper wants this server to leave.
void watchKeeper(Loop& loop, napi_value onLeave);

bool haveKeeper();
unsigned keeperCount();

// From any thread. False when the keeper cannot be told: it is gone, and this program will be soon.
bool tellKeeper(keeper_word word, uint64_t id = 0);
// With descriptors: of a process, as kept_fd counts them.
bool tellKeeper(keeper_word word, uint64_t id, const int (&fds)[KEPT_FDS]);
bool tellKeeperListener(int fd);

}  // namespace procwire

#endif
