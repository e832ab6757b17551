#include "net/listener-channel.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "programs/sandbox-listeners-protocol.h"

namespace procwire {
namespace {

// Receives one packet. Returns false if none has arrived yet. Without a valid packet there are no descriptors.
bool receiveListeners(int channel, std::vector<UniqueFd>& listeners) {
  char packet = 0;
  struct iovec data = {&packet, sizeof packet};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * MAX_SANDBOX_LISTENERS)];
  struct msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t length;
  do length = recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  if (length < 0 && errno == EAGAIN) return false;
  if (length <= 0) return true;
  for (struct cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t at = 0; at < count; at++) {
      int fd;
      memcpy(&fd, CMSG_DATA(head) + at * sizeof fd, sizeof fd);
      listeners.emplace_back(fd);
    }
  }
  // A truncated packet lacks descriptors, for example because the descriptor table is full.
  if (packet != SANDBOX_LISTENERS_PACKET || (message.msg_flags & MSG_CTRUNC)) listeners.clear();
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
