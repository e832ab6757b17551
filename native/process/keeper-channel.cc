#include "process/keeper-channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/fd.h"

namespace procwire {
namespace {

// The keeper takes a packet within microseconds; one that takes none for this long is stopped, and the server goes on.
constexpr int kSendWithinMs = 1000;
// What earlier servers left arrives at once.
constexpr int kInheritWithinMs = 10'000;

std::atomic<int> channel{-1};
unsigned serverCount = 0;

bool sendPacket(const keeper_packet& packet, const int* fds, size_t count) {
  const int fd = channel;
  if (fd < 0) {
    errno = ENOTCONN;
    return false;
  }
  keeper_message message;
  pack_message(&message, &packet, fds, static_cast<unsigned>(count));
  for (;;) {
    if (sendmsg(fd, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    struct pollfd room = {fd, POLLOUT, 0};
    if (poll(&room, 1, kSendWithinMs) == 0) return false;
  }
}

// Length of the packet, 0 at the end, -1 with errno set.
ssize_t receivePacket(int fd, keeper_packet& packet, int (&fds)[KEPT_FDS], size_t& count) {
  keeper_message message;
  make_room(&message);
  ssize_t length;
  do length = recvmsg(fd, &message.head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  count = length < 0 ? 0 : unpack_fds(&message, fds);
  packet = message.packet;
  return length;
}

Inherited inherited(const keeper_packet& packet, const int* fds, size_t count) {
  Inherited found;
  found.id = packet.id;
  size_t taken = 0;
  for (int at = 0; at < KEPT_FDS; at++) found.fds[at] = ((packet.value >> at) & 1) && taken < count ? fds[taken++] : -1;
  return found;
}

class KeeperWatch final : public Resident {
 public:
  KeeperWatch(Loop* loop, napi_ref onLeave) : loop_(loop), onLeave_(onLeave) {
    watch_.owner = this;
    watch_.fd = channel;
    loop_->arm(watch_, EPOLLIN);
  }

  void onReady(Watch&, uint32_t) override {
    keeper_packet packet = {};
    int fds[KEPT_FDS];
    size_t count = 0;
    const ssize_t length = receivePacket(watch_.fd, packet, fds, count);
    if (length < 0 && errno == EAGAIN) return;
    while (count > 0) close(fds[--count]);
    // The keeper is gone: this program gets SIGTERM for that, and the message is of no use any more.
    if (length <= 0) return loop_->arm(watch_, 0);
    if (packet.word != KEEPER_LEAVE) return;
    napi_env env = loop_->env();
    napi_handle_scope scope;
    napi_open_handle_scope(env, &scope);
    napi_value callback;
    if (napi_get_reference_value(env, onLeave_, &callback) == napi_ok) loop_->call(callback, 0, nullptr);
    napi_close_handle_scope(env, scope);
  }

  void abandon() override {}

 private:
  Loop* loop_;
  napi_ref onLeave_;
  Watch watch_;
};

}  // namespace

bool openKeeper(int fd, unsigned count, uint64_t hungAfterMs, Inheritance& found) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  channel = fd;
  serverCount = count;
  if (!sendPacket({KEEPER_PROTOCOL, KEEPER_HELLO, 0, hungAfterMs}, nullptr, 0)) return false;
  for (;;) {
    struct pollfd more = {fd, POLLIN, 0};
    const int ready = poll(&more, 1, kInheritWithinMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) errno = ETIMEDOUT;
    if (ready <= 0) return false;
    keeper_packet packet = {};
    int fds[KEPT_FDS];
    size_t length = 0;
    const ssize_t bytes = receivePacket(fd, packet, fds, length);
    if (bytes < 0 && errno == EAGAIN) continue;
    if (bytes == 0) errno = ECONNRESET;
    if (bytes <= 0) return false;
    if (packet.protocol != KEEPER_PROTOCOL) {
      errno = EPROTO;
      return false;
    }
    if (packet.word == KEEPER_HAS_LISTENER && length == 1) {
      found.listener = fds[0];
    } else if (packet.word == KEEPER_HAS) {
      found.kept.push_back(inherited(packet, fds, length));
    } else {
      while (length > 0) close(fds[--length]);
      if (packet.word != KEEPER_HAS_ALL) continue;
      found.version = packet.id == 0 ? 1 : static_cast<unsigned>(packet.id);
      return true;
    }
  }
}

void watchKeeper(Loop& loop, napi_value onLeave) {
  napi_ref reference;
  if (!haveKeeper() || napi_create_reference(loop.env(), onLeave, 1, &reference) != napi_ok) return;
  loop.add(new KeeperWatch(&loop, reference));
}

bool haveKeeper() { return channel >= 0; }

unsigned keeperCount() { return serverCount; }

bool tellKeeper(keeper_word word, uint64_t id) { return sendPacket({KEEPER_PROTOCOL, word, id, 0}, nullptr, 0); }

bool tellKeeper(keeper_word word, uint64_t id, const int (&fds)[KEPT_FDS]) {
  int given[KEPT_FDS];
  size_t count = 0;
  uint64_t which = 0;
  for (int at = 0; at < KEPT_FDS; at++) {
    if (fds[at] < 0) continue;
    given[count++] = fds[at];
    which |= uint64_t{1} << at;
  }
  return sendPacket({KEEPER_PROTOCOL, word, id, which}, given, count);
}

bool tellKeeperListener(int fd) { return sendPacket({KEEPER_PROTOCOL, KEEPER_LISTENER, 0, 0}, &fd, 1); }

}  // namespace procwire
