// The first program in a sandbox. Opens listeners on the loopback interface of the sandbox's network namespace, passes
// them to the server and closes its own copies. Then it enters a Landlock domain and becomes the command.
//
//   sandbox-listeners CHANNEL SELF [PORT...] [PATH...] -- COMMAND [ARGUMENT...]
//
// CHANNEL is one end of a seqpacket socket pair, or `-` without ports. Each PATH is absolute: the domain allows writing
// below it. Without a PATH there is no domain. SELF is the descriptor through which this file was executed: the
// file itself may be invisible in the sandbox. The filter of the sandbox already applies to this program.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "close-fd.h"
#include "landlock-domain.h"
#include "sandbox-listeners-protocol.h"

// Exit code of Codex's sandbox program if it cannot set up the network.
#define EXIT_NO_NETWORK 101
// Connections that wait until the server accepts them. The kernel lowers it to the limit of the namespace.
#define BACKLOG 1024

static int fail(const char* call, const char* subject) {
  fprintf(stderr, "cannot open the managed network of the sandbox: %s %s: %s\n", call, subject, strerror(errno));
  return EXIT_NO_NETWORK;
}

static int parse_number(const char* text, long max) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  return *text && !*end && value >= 0 && value <= max ? (int)value : -1;
}

// Returns a listener that exec closes, or -1 with errno set.
static int listen_at(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0) close_fd(&fd);
  return fd;
}

static int send_listeners(int channel, const int* fds, int count) {
  char packet = SANDBOX_LISTENERS_PACKET;
  struct iovec data = {&packet, sizeof packet};
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int) * MAX_SANDBOX_LISTENERS)];
  } control;
  memset(&control, 0, sizeof control);
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
  struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
  memcpy(CMSG_DATA(rights), fds, sizeof(int) * (size_t)count);
  ssize_t sent;
  do sent = sendmsg(channel, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? -1 : 0;
}

int main(int argc, char** argv) {
  const int has_channel = argc > 1 && strcmp(argv[1], "-") != 0;
  const int channel = has_channel ? parse_number(argv[1], 1 << 20) : -1;
  const int self = argc > 2 ? parse_number(argv[2], 1 << 20) : -1;
  int listeners[MAX_SANDBOX_LISTENERS];
  int count = 0;
  int at = 3;
  errno = EINVAL;
  // The command inherits neither of them.
  if (has_channel && (channel < 0 || fcntl(channel, F_SETFD, FD_CLOEXEC) < 0)) return fail("use", "CHANNEL");
  if (self < 0 || fcntl(self, F_SETFD, FD_CLOEXEC) < 0) return fail("use", "SELF");
  for (; at < argc && argv[at][0] != '/' && strcmp(argv[at], "--") != 0; at++) {
    const int port = parse_number(argv[at], 65535);
    errno = EINVAL;
    if (port <= 0 || count == MAX_SANDBOX_LISTENERS) return fail("use port", argv[at]);
    listeners[count] = listen_at(port);
    if (listeners[count++] < 0) return fail("listen at port", argv[at]);
  }
  const int first_path = at;
  while (at < argc && argv[at][0] == '/') at++;
  errno = EINVAL;
  if (has_channel != (count > 0) || at + 1 >= argc || strcmp(argv[at], "--") != 0) return fail("use", "arguments");
  if (has_channel && send_listeners(channel, listeners, count) < 0) return fail("send", "listeners");
  if (at > first_path) enter_landlock_domain(argv + first_path, at - first_path);
  execv(argv[at + 1], argv + at + 1);
  return fail("execute", argv[at + 1]);
}
