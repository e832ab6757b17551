#include "core/receive-descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

namespace procwire {
namespace {

// The kernel's maximum per message (SCM_MAX_FD). With less space, it would drop the rest.
constexpr size_t kMaxDescriptors = 253;

}  // namespace

ssize_t receiveDescriptors(int socket, char* bytes, size_t length, ReceivedDescriptors& received) {
  struct iovec data = {bytes, length};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  struct msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count;
  do count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  if (count < 0) return count;
  for (struct cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t descriptors = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t at = 0; at < descriptors; at++) {
      int fd;
      memcpy(&fd, CMSG_DATA(head) + at * sizeof fd, sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  received.isTruncated = message.msg_flags & MSG_CTRUNC;
  return count;
}

}  // namespace procwire
