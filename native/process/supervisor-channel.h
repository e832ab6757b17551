// Connection to the supervisor of this server (programs/supervisor.c), if there is one.
#ifndef PROCWIRE_PROCESS_SUPERVISOR_CHANNEL_H
#define PROCWIRE_PROCESS_SUPERVISOR_CHANNEL_H

#include <node_api.h>

#include <cstdint>
#include <vector>

#include "core/fd.h"
#include "core/loop.h"
#include "programs/state-segment-layout.h"
#include "programs/supervisor-protocol.h"

namespace procwire {

// A process of an earlier server with the descriptors that it has, indexed by persistent_fd.
struct RestoredProcess {
  uint64_t id;
  UniqueFd fds[PERSIST_FD_COUNT];
};

struct HandoffState {
  UniqueFd listener;
  unsigned version = SEGMENT_VERSION;  // segment version that the supervisor reads
  std::vector<RestoredProcess> processes;
};

// Sends HELLO and receives the listener and the persistent processes of earlier servers. Returns false with errno set.
// `generation` numbers the servers of one supervisor.
bool connectSupervisor(int fd, unsigned generation, uint64_t livenessTimeoutMs, uint64_t giveUpAfter,
                       HandoffState& found);

// Receives the messages of the supervisor from now on. Calls `onHandoff` when it requests a handoff.
void watchSupervisor(Loop& loop, napi_value onHandoff);

bool hasSupervisor();
unsigned serverGeneration();

// Send a packet from any thread. Return false if the supervisor has exited, which also ends this server.
bool notifySupervisor(supervisor_message_type type, uint64_t id = 0);
// Sends the descriptors of a process, indexed by persistent_fd.
bool notifySupervisor(supervisor_message_type type, uint64_t id, const int (&fds)[PERSIST_FD_COUNT]);
bool sendListener(int fd);

}  // namespace procwire

#endif
