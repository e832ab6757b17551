#include "process/supervisor-channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/fd.h"
#include "core/receive-descriptors.h"
#include "process/state-segment.h"

namespace procwire {
namespace {

// Maximum time to send a packet. The supervisor reads within microseconds unless it is stopped, and the server must
// keep serving.
constexpr int kSendTimeoutMs = 1000;
// Maximum time to receive the restored processes, which the supervisor sends at once.
constexpr int kRestoreTimeoutMs = 10'000;

// Never closed: its end of file reports the exit of this server to the supervisor.
std::atomic<int> channel{-1};
unsigned generation = 0;

bool sendPacket(const supervisor_packet& packet, const int* fds, size_t count) {
  const int fd = channel;
  if (fd < 0) {
    errno = ENOTCONN;
    return false;
  }
  supervisor_message message;
  prepare_send(&message, &packet, fds, static_cast<unsigned>(count));
  for (;;) {
    if (sendmsg(fd, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    struct pollfd writable = {fd, POLLOUT, 0};
    if (poll(&writable, 1, kSendTimeoutMs) == 0) return false;
  }
}

struct Received {
  ssize_t length = -1;  // length of the packet, 0 at the end, -1 with errno set
  supervisor_packet packet = {};
  std::vector<UniqueFd> fds;
  bool isTruncated = false;  // descriptors are missing
};

Received receivePacket(int fd) {
  Received received;
  ReceivedDescriptors descriptors;
  char* const bytes = reinterpret_cast<char*>(&received.packet);
  received.length = receiveDescriptors(fd, bytes, sizeof received.packet, descriptors);
  received.fds = std::move(descriptors.fds);
  received.isTruncated = descriptors.isTruncated;
  return received;
}

RestoredProcess toRestored(Received& received) {
  RestoredProcess restored;
  restored.id = received.packet.id;
  size_t taken = 0;
  for (int at = 0; at < PERSIST_FD_COUNT && taken < received.fds.size(); at++)
    if ((received.packet.value >> at) & 1) restored.fds[at] = std::move(received.fds[taken++]);
  return restored;
}

class SupervisorWatch final : public LoopObject {
 public:
  SupervisorWatch(Loop* loop, ValueRef onHandoff) : loop_(loop), onHandoff_(std::move(onHandoff)) {
    watch_.owner = this;
    watch_.borrow(channel);
    loop_->arm(watch_, EPOLLIN);
  }

  void onReady(Watch&, uint32_t) override {
    const Received received = receivePacket(watch_.fd);
    if (received.length < 0 && errno == EAGAIN) return;
    // The supervisor has exited. The kernel sends SIGTERM to this process, so nothing else to do.
    if (received.length <= 0) return loop_->arm(watch_, 0);
    if (received.packet.type == SUPERVISOR_REJECTED) return StateSegment::onRejected(received.packet.id);
    if (received.packet.type != SUPERVISOR_HANDOFF) return;
    HandleScope scope(loop_->env());
    loop_->call(onHandoff_.get(), 0, nullptr);
  }

  void destroyWithoutEvents() override {}

 private:
  Loop* loop_;
  ValueRef onHandoff_;
  Watch watch_;
};

}  // namespace

bool connectSupervisor(int fd, unsigned serverCount, uint64_t livenessTimeoutMs, uint64_t giveUpAfter,
                       HandoffState& found) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  channel = fd;
  generation = serverCount;
  if (!sendPacket({SUPERVISOR_PROTOCOL, SUPERVISOR_HELLO, giveUpAfter, livenessTimeoutMs}, nullptr, 0)) return false;
  for (;;) {
    struct pollfd readable = {fd, POLLIN, 0};
    const int ready = poll(&readable, 1, kRestoreTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) errno = ETIMEDOUT;
    if (ready <= 0) return false;
    Received received = receivePacket(fd);
    if (received.length < 0 && errno == EAGAIN) continue;
    if (received.length == 0) errno = ECONNRESET;
    if (received.length <= 0) return false;
    if (received.packet.protocol != SUPERVISOR_PROTOCOL) {
      errno = EPROTO;
      return false;
    }
    if (received.isTruncated) {
      errno = EMFILE;
      return false;
    }
    switch (received.packet.type) {
      case SUPERVISOR_RESTORED_LISTENER:
        if (received.fds.size() == 1) found.listener = std::move(received.fds[0]);
        break;
      case SUPERVISOR_RESTORED: found.processes.push_back(toRestored(received)); break;
      case SUPERVISOR_RESTORED_ALL:
        found.version = received.packet.id == 0 ? 1 : static_cast<unsigned>(received.packet.id);
        return true;
      default: break;
    }
  }
}

void watchSupervisor(Loop& loop, napi_value onHandoff) {
  if (hasSupervisor()) loop.add(new SupervisorWatch(&loop, ValueRef(loop.env(), onHandoff)));
}

bool hasSupervisor() { return channel >= 0; }

unsigned serverGeneration() { return generation; }

bool notifySupervisor(supervisor_message_type type, uint64_t id) {
  return sendPacket({SUPERVISOR_PROTOCOL, type, id, 0}, nullptr, 0);
}

bool notifySupervisor(supervisor_message_type type, uint64_t id, const int (&fds)[PERSIST_FD_COUNT]) {
  int sent[PERSIST_FD_COUNT];
  size_t count = 0;
  uint64_t which = 0;
  for (int at = 0; at < PERSIST_FD_COUNT; at++) {
    if (fds[at] < 0) continue;
    sent[count++] = fds[at];
    which |= uint64_t{1} << at;
  }
  return sendPacket({SUPERVISOR_PROTOCOL, type, id, which}, sent, count);
}

bool sendListener(int fd) { return sendPacket({SUPERVISOR_PROTOCOL, SUPERVISOR_LISTENER, 0, 0}, &fd, 1); }

}  // namespace procwire
