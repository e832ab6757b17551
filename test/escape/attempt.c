// Makes one attempt to escape from the sandbox. Prints `ok` or the name of the errno.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int printResult(long result) {
  int err = errno;
  if (result >= 0) puts("ok");
  else puts(strerrorname_np(err) ? strerrorname_np(err) : "unknown");
  return 0;
}

// Fills in the address of a socket path, or of an abstract socket (`@name`). Returns the length of the address.
static socklen_t toAddress(const char* name, struct sockaddr_un* address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  strncpy(address->sun_path, name, sizeof address->sun_path - 1);
  if (name[0] == '@') address->sun_path[0] = 0;
  return offsetof(struct sockaddr_un, sun_path) + strlen(name);
}

static int connectTo(const char* name) {
  struct sockaddr_un address;
  socklen_t length = toAddress(name, &address);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return printResult(-1);
  return printResult(connect(fd, (struct sockaddr*)&address, length));
}

// Sends a datagram to an IPv4 or IPv6 address.
static int sendDatagram(const char* host, int port) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  const int isV6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
  if (!isV6) inet_pton(AF_INET, host, &v4.sin_addr);
  const int fd = socket(isV6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
  if (fd < 0) return printResult(-1);
  const struct sockaddr* to = isV6 ? (struct sockaddr*)&v6 : (struct sockaddr*)&v4;
  return printResult(sendto(fd, "x", 1, 0, to, isV6 ? sizeof v6 : sizeof v4));
}

// Creates a socket pair, then uses one end like an unconnected socket.
static int leavePair(int type, const char* how, const char* name) {
  struct sockaddr_un address;
  socklen_t length = toAddress(name, &address);
  const struct sockaddr* target = (struct sockaddr*)&address;
  int ends[2];
  if (socketpair(AF_UNIX, type, 0, ends) < 0) return printResult(-1);
  if (!strcmp(how, "connect")) return printResult(connect(ends[0], target, length));
  if (!strcmp(how, "sendto")) return printResult(sendto(ends[0], "x", 1, MSG_NOSIGNAL, target, length));
  if (!strcmp(how, "bind")) return printResult(bind(ends[0], target, length));
  if (!strcmp(how, "listen")) return printResult(bind(ends[0], target, length) < 0 ? -1 : listen(ends[0], 1));
  if (!strcmp(how, "connect-alone")) {
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    shutdown(ends[0], SHUT_RDWR);
    close(ends[1]);
    connect(ends[0], &none, sizeof none);
    return printResult(connect(ends[0], target, length));
  }
  fprintf(stderr, "unknown use of a pair\n");
  return 2;
}

static int inChild(int flags) {
  long pid = syscall(SYS_clone, (long)(flags | SIGCHLD), 0L, 0L, 0L, 0L);
  if (pid == 0) _exit(0);
  return printResult(pid);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "connect")) return connectTo(argv[2]);
  if (!strcmp(what, "socket")) return printResult(socket(atoi(argv[2]), argc > 3 ? atoi(argv[3]) : SOCK_STREAM, 0));
  if (!strcmp(what, "datagram")) return sendDatagram(argv[2], atoi(argv[3]));
  if (!strcmp(what, "setns")) return printResult(setns(open(argv[2], O_RDONLY), CLONE_NEWNET));
  if (!strcmp(what, "unshare-net")) return printResult(unshare(CLONE_NEWNET));
  if (!strcmp(what, "socketpair")) {
    int ends[2];
    return printResult(socketpair(AF_UNIX, argc > 2 ? atoi(argv[2]) : SOCK_STREAM, 0, ends));
  }
  if (!strcmp(what, "pair")) return leavePair(atoi(argv[2]), argv[3], argv[4]);
  if (!strcmp(what, "ptrace")) return printResult(ptrace(PTRACE_TRACEME, 0, 0, 0));
  if (!strcmp(what, "io_uring")) {
    char params[120] = {0};
    return printResult(syscall(425, 4, params));
  }
  if (!strcmp(what, "unshare")) return printResult(unshare(CLONE_NEWUSER));
  if (!strcmp(what, "clone")) return inChild(CLONE_NEWUSER);
  if (!strcmp(what, "fork")) return inChild(0);
  if (!strcmp(what, "clone3")) {
    unsigned long long args[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    long pid = syscall(435, args, sizeof args);
    if (pid == 0) _exit(0);
    return printResult(pid);
  }
  if (!strcmp(what, "tiocsti")) {
    // The kernel evaluates only the low 32 bits of the request, so the filter must ignore the high bits as well.
    char byte = '\n';
    return printResult(syscall(SYS_ioctl, 0, argc > 2 ? 0x100005412UL : 0x5412UL, &byte));
  }
  if (!strcmp(what, "keyctl")) return printResult(syscall(SYS_keyctl, 0, -4, 1));
#ifdef __x86_64__
  if (!strcmp(what, "x32")) return printResult(syscall(0x40000000 | SYS_getpid));
  if (!strcmp(what, "i386")) {
    // Calls getpid through int 0x80, which uses the system call numbers of i386.
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    return printResult(result);
  }
#endif
  fprintf(stderr, "unknown attempt\n");
  return 2;
}
