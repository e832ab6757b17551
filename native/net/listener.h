// A listening socket. Emits each accepted connection as a Socket that is not yet read.
#ifndef PROCWIRE_NET_LISTENER_H
#define PROCWIRE_NET_LISTENER_H

#include <node_api.h>
#include <sys/socket.h>

#include <string>

#include "core/loop.h"

namespace procwire {

// Return a listening descriptor, or none with errno set. `host` is an IP address, not a name.
UniqueFd listenTcp(const std::string& host, int port, int backlog);
UniqueFd listenUnix(const std::string& path, int backlog);

// Returns a non-blocking socket that is connected or still connecting. Empty, with errno set, on a failure: 0 if `host`
// is a name or an invalid path. Port -1: `host` is the path of a Unix socket.
UniqueFd connectStream(const std::string& host, int port);
// Returns a non-blocking datagram socket that sends to this path. Empty, with errno set, if there is no receiver.
UniqueFd connectDatagram(const std::string& path);
// Creates a timer descriptor, or returns none with errno set. Created up front, because it is needed when no descriptor
// is free.
UniqueFd makeTimer();
// Returns the bound port, or 0 if the socket has none.
int boundPort(int fd);

class Listener final : public LoopObject {
 public:
  // Takes ownership of the listening descriptor and of a descriptor from `makeTimer`. Calls `onConnection` with the
  // socket, the peer's name and its uid.
  Listener(Loop* loop, UniqueFd fd, UniqueFd timer, ValueRef onConnection);

  void onReady(Watch& watch, uint32_t events) override;
  // Stops listening. Idempotent.
  void close();
  void destroyWithoutEvents() override { close(); }

 private:
  void emit(UniqueFd accepted, const struct sockaddr_storage& peer);

  Loop* loop_;
  ValueRef onConnection_;
  Watch watch_;
  Watch timer_;
};

}  // namespace procwire

#endif
