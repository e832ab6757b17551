// The server's end of a socket pair through which a sandbox passes its listeners (programs/sandbox-listeners.c).
#ifndef PROCWIRE_NET_LISTENER_CHANNEL_H
#define PROCWIRE_NET_LISTENER_CHANNEL_H

#include <vector>

#include "core/loop.h"

namespace procwire {

class ListenerChannel final : public LoopObject {
 public:
  // Calls `onListeners` once, with the received descriptors, which the callee owns; with none if the sandbox closed
  // its end before. Never calls it after `close`.
  ListenerChannel(Loop* loop, UniqueFd fd, ValueRef onListeners);

  void onReady(Watch& watch, uint32_t events) override;
  // Stops receiving. Idempotent.
  void close();
  void destroyWithoutEvents() override { close(); }

 private:
  Loop* loop_;
  ValueRef onListeners_;
  Watch watch_;
};

// Creates both ends, which exec closes. Returns false with errno set.
bool openListenerChannel(UniqueFd& serverEnd, UniqueFd& sandboxEnd);

}  // namespace procwire

#endif
