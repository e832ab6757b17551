#include "net/stdio-transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

#include "core/receive-descriptors.h"

namespace procwire {
namespace {

// With the default of 64 KiB, the programs at both ends of a pipe wait for each other during a copy. The default stays
// if the user may not enlarge it.
constexpr int kPipeBytes = 1024 * 1024;

int socketOption(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

bool isConnectedUnixSocket(int fd) {
  return socketOption(fd, SO_DOMAIN) == AF_UNIX && socketOption(fd, SO_TYPE) == SOCK_STREAM &&
         socketOption(fd, SO_ACCEPTCONN) == 0;
}

bool prepareEnd(int fd) {
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0) return false;
  if (S_ISFIFO(status.st_mode)) fcntl(fd, F_SETPIPE_SZ, kPipeBytes);
  else if (!isConnectedUnixSocket(fd)) return false;
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

bool TransferredStdio::prepare() const { return prepareEnd(input.get()) && prepareEnd(output.get()); }

int sendStdio(int connection, int input, int output) {
  const int descriptors[] = {input, output};
  char line[kTransferLine.size()];
  memcpy(line, kTransferLine.data(), sizeof line);
  struct iovec data = {line, sizeof line};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  struct msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptors);
  memcpy(CMSG_DATA(head), descriptors, sizeof descriptors);
  ssize_t sent;
  do sent = sendmsg(connection, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno;
  // An empty connection takes a short line at once.
  return sent == static_cast<ssize_t>(sizeof line) ? 0 : EIO;
}

int confirmTransfer(int connection) {
  ssize_t sent;
  do sent = send(connection, kTransferLine.data(), kTransferLine.size(), MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno;
  return sent == static_cast<ssize_t>(kTransferLine.size()) ? 0 : EIO;
}

ssize_t readWithStdio(int connection, char* bytes, size_t length, TransferredStdio& passed) {
  ReceivedDescriptors received;
  const ssize_t count = receiveDescriptors(connection, bytes, length, received);
  if (received.fds.empty()) return count;
  passed.input = std::move(received.fds[0]);
  if (received.fds.size() > 1) passed.output = std::move(received.fds[1]);
  return count;
}

}  // namespace procwire
