#include "wire/listener.h"

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

#include "core/fd.h"
#include "wire/socket.h"

namespace procwire {
namespace {

// Connections taken per round; more wait for the next, so that other parts of the program get their turn.
constexpr int kAcceptedPerRound = 64;
// The socket's send buffer. All of it is ahead of whatever comes next, so it is small: enough to keep a fast reader
// busy until more is written.
constexpr int kUnsentBytes = 256 * 1024;
// With no descriptor left, how long before the retry: there is no event for a free one.
constexpr long kTryAgainNs = 20 * 1000 * 1000;

int failed(int fd, int err) {
  if (fd >= 0) close(fd);
  errno = err;
  return -1;
}

int bound(int fd, const struct sockaddr* address, socklen_t length, int backlog) {
  if (fd < 0) return -1;
  if (bind(fd, address, length) < 0 || listen(fd, backlog) < 0) return failed(fd, errno);
  return fd;
}

// `1.2.3.4:5`, `::1:5` or `unix`, as error texts name a peer.
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

// Who connected to a unix socket, as the kernel noted it then; -1 for other sockets.
double peerUid(int fd, const struct sockaddr_storage& address) {
  struct ucred peer = {};
  socklen_t length = sizeof peer;
  if (address.ss_family != AF_UNIX || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) return -1;
  return peer.uid;
}

}  // namespace

int listenTcp(const std::string& host, int port, int backlog) {
  struct addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  struct addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return failed(-1, EINVAL);
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  fd = bound(fd, found->ai_addr, found->ai_addrlen, backlog);
  const int err = errno;
  freeaddrinfo(found);
  errno = err;
  return fd;
}

int listenUnix(const std::string& path, int backlog) {
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return failed(-1, ENAMETOOLONG);
  memcpy(address.sun_path, path.data(), path.size());
  const socklen_t length = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + path.size() + 1);
  return bound(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
               reinterpret_cast<const struct sockaddr*>(&address), length, backlog);
}

int makeTimer() { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); }

int boundPort(int fd) {
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length) < 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const struct sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const struct sockaddr_in6&>(address).sin6_port);
  return 0;
}

Listener::Listener(Loop* loop, int fd, int timer, napi_ref onConnection) : loop_(loop), onConnection_(onConnection) {
  watch_.owner = this;
  watch_.fd = fd;
  timer_.owner = this;
  timer_.fd = timer;
  loop_->arm(watch_, EPOLLIN);
}

void Listener::onReady(Watch& watch, uint32_t) {
  if (&watch == &timer_) {
    // Not registered, so the timer need not be read: setting it again makes it unready.
    loop_->arm(timer_, 0);
    loop_->arm(watch_, EPOLLIN);
    return;
  }
  for (int taken = 0; taken < kAcceptedPerRound && watch_.fd >= 0; taken++) {
    const int fd = accept4(watch_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      tell(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // A connection that waits to be accepted keeps this readable; look again in a moment instead of at once.
      struct itimerspec later = {};
      later.it_value.tv_nsec = kTryAgainNs;
      timerfd_settime(timer_.fd, 0, &later, nullptr);
      loop_->arm(watch_, 0);
      loop_->arm(timer_, EPOLLIN);
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Listener::tell(int fd) {
  const int on = 1;
  // Both fail for a unix socket, which has neither such a delay nor so large a buffer.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getpeername(fd, reinterpret_cast<struct sockaddr*>(&address), &length);
  const std::string name = peerName(address);
  const double uid = peerUid(fd, address);
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  Socket* socket = new Socket(loop_, fd);
  napi_value argv[3] = {socket->handle(env), nullptr, nullptr};
  loop_->add(socket);
  napi_create_string_utf8(env, name.data(), name.size(), &argv[1]);
  napi_create_double(env, uid, &argv[2]);
  napi_value callback;
  if (napi_get_reference_value(env, onConnection_, &callback) == napi_ok) loop_->call(callback, 3, argv);
  napi_close_handle_scope(env, scope);
}

void Listener::close() {
  if (watch_.fd < 0) return;
  loop_->arm(watch_, 0);
  loop_->arm(timer_, 0);
  closeFd(watch_.fd);
  closeFd(timer_.fd);
  napi_delete_reference(loop_->env(), onConnection_);
  loop_->remove(this);
}

}  // namespace procwire
