#include "net/listener-channel.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "core/receive-descriptors.h"
#include "programs/sandbox-listeners-protocol.h"

namespace procwire {
namespace {

// Receives one packet. Returns false if none has arrived yet. Without a valid packet there are no descriptors.
bool receiveListeners(int channel, std::vector<UniqueFd>& listeners) {
  char packet = 0;
  ReceivedDescriptors received;
  const ssize_t length = receiveDescriptors(channel, &packet, sizeof packet, received);
  if (length < 0 && errno == EAGAIN) return false;
  const bool isValid = packet == SANDBOX_LISTENERS_PACKET && !received.isTruncated;
  if (length > 0 && isValid && received.fds.size() <= MAX_SANDBOX_LISTENERS) listeners = std::move(received.fds);
  return true;
}

}  // namespace

bool openListenerChannel(UniqueFd& serverEnd, UniqueFd& sandboxEnd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return false;
  serverEnd.reset(ends[0]);
  sandboxEnd.reset(ends[1]);
  return true;
}

ListenerChannel::ListenerChannel(Loop* loop, UniqueFd fd, ValueRef onListeners)
    : loop_(loop), onListeners_(std::move(onListeners)) {
  watch_.owner = this;
  watch_.open(std::move(fd));
  loop_->arm(watch_, EPOLLIN);
}

void ListenerChannel::onReady(Watch&, uint32_t) {
  if (watch_.fd < 0) return;
  std::vector<UniqueFd> listeners;
  if (!receiveListeners(watch_.fd, listeners)) return;
  napi_env env = loop_->env();
  HandleScope scope(env);
  ArrayBuilder array(env);
  for (UniqueFd& listener : listeners) array.push(listener.release());
  napi_value argument = array.get();
  napi_value onListeners = onListeners_.get();
  close();
  loop_->call(onListeners, 1, &argument);
}

void ListenerChannel::close() {
  if (watch_.fd < 0) return;
  loop_->arm(watch_, 0);
  watch_.close();
  onListeners_.reset();
  loop_->remove(this);
}

}  // namespace procwire
