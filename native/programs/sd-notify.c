#define _GNU_SOURCE
#include "sd-notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "close-fd.h"

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
  close_fd(&fd);
}

int has_service_manager(void) {
  const char* path = getenv("NOTIFY_SOCKET");
  return path && path[0];
}

void notify_service_manager(enum service_state state) {
  char text[64];
  struct timespec now;
  switch (state) {
    case SERVICE_READY: notify("READY=1"); break;
    case SERVICE_RELOADING:
      clock_gettime(CLOCK_MONOTONIC, &now);
      snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
      notify(text);
      break;
    case SERVICE_STOPPING: notify("STOPPING=1"); break;
  }
}
