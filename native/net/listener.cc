#include "net/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "core/fd.h"
#include "net/socket.h"

namespace procwire {
namespace {

// Maximum connections per poll. Further connections wait, so that other parts of the server run in between.
constexpr int kMaxAcceptsPerPoll = 64;
// Maximum unsent bytes in the socket buffer. A later message waits behind all of them, so the limit is small, but
// enough to keep a fast reader busy.
constexpr int kSendBufferBytes = 256 * 1024;
// Delay before the next accept when no descriptor is free. The kernel reports no event for a freed descriptor.
constexpr long kAcceptRetryNs = 20 * 1000 * 1000;

UniqueFd failed(int err) {
  errno = err;
  return UniqueFd();
}

UniqueFd bindAndListen(UniqueFd fd, const struct sockaddr* address, socklen_t length, int backlog) {
  if (fd && (bind(fd.get(), address, length) < 0 || listen(fd.get(), backlog) < 0)) fd.reset();
  return fd;
}

// Formats a peer for error messages: `1.2.3.4:5`, `::1:5` or `unix`.
std::string peerName(const struct sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  switch (address.ss_family) {
    case AF_INET: {
      const auto& v4 = reinterpret_cast<const struct sockaddr_in&>(address);
      inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
      return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
    }
    case AF_INET6: {
      const auto& v6 = reinterpret_cast<const struct sockaddr_in6&>(address);
      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
      return std::string(text) + ":" + std::to_string(ntohs(v6.sin6_port));
    }
    default: return "unix";
  }
}

// Returns the uid of the peer of a Unix socket at connect time, or -1 for other sockets.
double peerUid(int fd, const struct sockaddr_storage& address) {
  struct ucred peer = {};
  socklen_t length = sizeof peer;
  if (address.ss_family != AF_UNIX || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) return -1;
  return peer.uid;
}

// Returns the length of the address, or 0 if the path is empty, too long or has a zero byte.
socklen_t toUnixAddress(const std::string& path, struct sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos) return 0;
  memcpy(address.sun_path, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + path.size() + 1);
}

// Fills in the address and returns its length, or 0 if `host` is not an IP address.
socklen_t toTcpAddress(const std::string& host, int port, struct sockaddr_storage& address) {
  struct addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  struct addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return 0;
  const socklen_t length = found->ai_addrlen;
  memcpy(&address, found->ai_addr, length);
  freeaddrinfo(found);
  return length;
}

UniqueFd streamSocket(int family) { return UniqueFd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

UniqueFd listenTcp(const std::string& host, int port, int backlog) {
  struct sockaddr_storage address;
  const socklen_t length = toTcpAddress(host, port, address);
  if (length == 0) return failed(EINVAL);
  UniqueFd fd = streamSocket(address.ss_family);
  const int on = 1;
  if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bindAndListen(std::move(fd), reinterpret_cast<const struct sockaddr*>(&address), length, backlog);
}

UniqueFd listenUnix(const std::string& path, int backlog) {
  struct sockaddr_un address;
  const socklen_t length = toUnixAddress(path, address);
  if (length == 0) return failed(ENAMETOOLONG);
  return bindAndListen(streamSocket(AF_UNIX), reinterpret_cast<const struct sockaddr*>(&address), length, backlog);
}

UniqueFd connectStream(const std::string& host, int port) {
  struct sockaddr_storage address;
  const socklen_t length = port < 0 ? toUnixAddress(host, reinterpret_cast<struct sockaddr_un&>(address))
                                    : toTcpAddress(host, port, address);
  if (length == 0) return failed(0);
  UniqueFd fd = streamSocket(address.ss_family);
  if (!fd) return fd;
  const int on = 1;
  // Fails for Unix sockets, which do not need it.
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int result = connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), length);
  return result < 0 && errno != EINPROGRESS ? failed(errno) : std::move(fd);
}

UniqueFd connectDatagram(const std::string& path) {
  struct sockaddr_un address;
  const socklen_t length = toUnixAddress(path, address);
  if (length == 0) return failed(ENAMETOOLONG);
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd && connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), length) < 0) return failed(errno);
  return fd;
}

UniqueFd makeTimer() { return UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)); }

int boundPort(int fd) {
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length) < 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const struct sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const struct sockaddr_in6&>(address).sin6_port);
  return 0;
}

Listener::Listener(Loop* loop, UniqueFd fd, UniqueFd timer, ValueRef onConnection)
    : loop_(loop), onConnection_(std::move(onConnection)) {
  watch_.owner = this;
  watch_.open(std::move(fd));
  timer_.owner = this;
  timer_.open(std::move(timer));
  loop_->arm(watch_, EPOLLIN);
}

void Listener::onReady(Watch& watch, uint32_t) {
  if (&watch == &timer_) {
    // The timer is disarmed, so its expiration need not be read. Setting it again clears it.
    loop_->arm(timer_, 0);
    loop_->arm(watch_, EPOLLIN);
    return;
  }
  for (int accepted = 0; accepted < kMaxAcceptsPerPoll && watch_.fd >= 0; accepted++) {
    // Takes the address of the peer here, because getpeername fails if the peer has reset the connection.
    struct sockaddr_storage peer = {};
    socklen_t length = sizeof peer;
    UniqueFd fd(accept4(watch_.fd, reinterpret_cast<struct sockaddr*>(&peer), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      emit(std::move(fd), peer);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // A pending connection keeps the socket readable, so retry after a delay.
      struct itimerspec later = {};
      later.it_value.tv_nsec = kAcceptRetryNs;
      timerfd_settime(timer_.fd, 0, &later, nullptr);
      loop_->arm(watch_, 0);
      loop_->arm(timer_, EPOLLIN);
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Listener::emit(UniqueFd accepted, const struct sockaddr_storage& peer) {
  const int fd = accepted.get();
  const int on = 1;
  // Both options fail for Unix sockets, which need neither.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kSendBufferBytes, sizeof kSendBufferBytes);
  const std::string name = peerName(peer);
  const double uid = peerUid(fd, peer);
  napi_env env = loop_->env();
  HandleScope scope(env);
  Socket* socket = new Socket(loop_, std::move(accepted), peer.ss_family == AF_UNIX);
  napi_value argv[] = {socket->handle(env), toValue(env, std::string_view(name)), toValue(env, nonNegative(uid))};
  loop_->add(socket);
  loop_->call(onConnection_.get(), 3, argv);
}

void Listener::close() {
  if (watch_.fd < 0) return;
  loop_->arm(watch_, 0);
  loop_->arm(timer_, 0);
  watch_.close();
  timer_.close();
  onConnection_.reset();
  loop_->remove(this);
}

}  // namespace procwire
