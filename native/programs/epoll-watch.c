#define _GNU_SOURCE
#include "epoll-watch.h"

#include <errno.h>
#include <unistd.h>

#include "close-fd.h"

static int watches = -1;

int open_watches(void) {
  watches = epoll_create1(EPOLL_CLOEXEC);
  return watches < 0 ? -1 : 0;
}

void watch_fd(int fd, uint32_t events, struct watch* watch) {
  struct epoll_event event = {.events = events, .data.ptr = watch};
  if (epoll_ctl(watches, EPOLL_CTL_ADD, fd, &event) < 0 && errno == EEXIST)
    epoll_ctl(watches, EPOLL_CTL_MOD, fd, &event);
}

void unwatch_fd(int fd) { epoll_ctl(watches, EPOLL_CTL_DEL, fd, NULL); }

void close_watched_fd(int* fd) {
  // Fails if the descriptor is not watched.
  unwatch_fd(*fd);
  close_fd(fd);
}

int wait_for_events(struct epoll_event* events, int max_events, int timeout_ms) {
  return epoll_wait(watches, events, max_events, timeout_ms);
}
