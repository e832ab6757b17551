// Moves bytes between a client and a server on another thread, without copying them to this process.
#ifndef PROCWIRE_NET_BYTE_BRIDGE_H
#define PROCWIRE_NET_BYTE_BRIDGE_H

#include "core/job-queue.h"
#include "core/loop.h"
#include "core/napi.h"

namespace procwire {

// One call from JavaScript. The descriptors are non-blocking and stay with the caller, who keeps them open until
// `onDone`.
class BridgeJob : public Job {
 public:
  int input = -1;
  int output = -1;
  int server = -1;
  ValueRef onDone;

  // Returns when the server has closed its side and `output` has all its bytes, or when `output` fails.
  void run() override;
  void fail(int err) override { err_ = err; }
  void deliver(Loop& loop) override;

 private:
  int err_ = 0;
};

// The queue of all bridges.
JobQueue& bridgeJobs();

}  // namespace procwire

#endif
