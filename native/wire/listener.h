// A listening socket: accepts connections, each as a `Socket` that is not read yet.
#ifndef PROCWIRE_LISTENER_H
#define PROCWIRE_LISTENER_H

#include <node_api.h>

#include <string>

#include "core/loop.h"

namespace procwire {

// Descriptors that listen, or -1 with errno set. The host is an address, never a name.
int listenTcp(const std::string& host, int port, int backlog);
int listenUnix(const std::string& path, int backlog);
// A timer as a descriptor, or -1 with errno set: when there are none left it is too late to ask for one.
int makeTimer();
// The port a descriptor is bound to, 0 when it has none.
int boundPort(int fd);

class Listener final : public Resident {
 public:
  // Takes over both descriptors, one that listens and one of `makeTimer`. `onConnection` is called with the socket, its
  // peer's name and its uid.
  Listener(Loop* loop, int fd, int timer, napi_ref onConnection);

  void onReady(Watch& watch, uint32_t events) override;
  // Stops listening; harmless when it has.
  void close();
  void abandon() override { close(); }

 private:
  void tell(int fd);

  Loop* loop_;
  napi_ref onConnection_;
  Watch watch_;
  Watch timer_;
};

}  // namespace procwire

#endif
