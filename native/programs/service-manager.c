#define _GNU_SOURCE
#include "service-manager.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void notify(const char* text) {
  const char* path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!path || !path[0] || strlen(path) >= sizeof address.sun_path) return;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  strcpy(address.sun_path, path);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
  if (address.sun_path[0] == '@') address.sun_path[0] = 0;
  while (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr*)&address, length) < 0 && errno == EINTR) {}
  close(fd);
}

void tell_ready(void) { notify("READY=1"); }

void tell_reloading(void) {
  char text[64];
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
  notify(text);
}

void tell_stopping(void) { notify("STOPPING=1"); }
