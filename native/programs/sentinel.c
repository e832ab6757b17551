#define _GNU_SOURCE
#include "sentinel.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "../core/process-stat.h"
#include "../core/syscall-numbers.h"
#include "../process/tree-tag-values.h"
#include "close-fd.h"

// Time after which a killed process counts as hung in the kernel. The sentinel then gives up on it.
#define SEARCH_SECONDS 10
#define SEARCH_PAUSE_MS 2
// Scans without a match before a search ends. A process that forks constantly may be between two pids in one scan, but
// hardly in this many.
#define EMPTY_SCANS 5
// Intervals between two searches for abandoned cgroups.
#define FIRST_SCAN_INTERVAL_MS 500
#define MAX_SCAN_INTERVAL_MS 60000

static int has_tag_of(pid_t pid, uint64_t first) {
  const int carriers[] = {RLIMIT_LOCKS, RLIMIT_RSS};
  for (size_t at = 0; at < sizeof carriers / sizeof *carriers; at++) {
    uint64_t values[2];
    if (syscall(SYS_prlimit64, pid, carriers[at], NULL, values) == 0 && is_tag_of(values[0], first)) return 1;
  }
  return 0;
}

// Kills the process if it is alive and has a tag of the server that `first` belongs to. Returns true if so.
static int kill_if_tagged(pid_t pid, uint64_t first) {
  struct process_stat process;
  // The pidfd is opened before the checks, so that the checked process is the killed one.
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  int killed = read_process_stat(pid, &process) == 0 && process.state != 'Z' && has_tag_of(pid, first);
  if (killed && fd >= 0) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
  else if (killed) kill(pid, SIGKILL);
  close_fd(&fd);
  return killed;
}

static int kill_tagged(uint64_t first) {
  DIR* processes = opendir("/proc");
  if (!processes) return 0;
  int killed = 0;
  const struct dirent* entry;
  while ((entry = readdir(processes))) {
    pid_t pid = atoi(entry->d_name);
    if (pid > 0) killed += kill_if_tagged(pid, first);
  }
  closedir(processes);
  return killed;
}

// Kills every process of the host with a tag of the server that `first` belongs to.
static void kill_all_tagged(uint64_t first) {
  int empty_scans = 0;
  for (int round = 0; empty_scans < EMPTY_SCANS && round < SEARCH_SECONDS * 1000 / SEARCH_PAUSE_MS; round++) {
    empty_scans = kill_tagged(first) > 0 ? 0 : empty_scans + 1;
    pause_ms(SEARCH_PAUSE_MS);
  }
}

int run_sentinel(const struct server_cgroup* cgroup, int channel) {
  pid_t server = 0;
  char more;
  setsid();
  if (chdir("/") < 0) return 1;
  dup2(STDOUT_FILENO, STDERR_FILENO);
  prctl(PR_SET_NAME, "pw-sentinel");
  kill_abandoned_cgroups(cgroup);
  if (read(channel, &server, sizeof server) != sizeof server) server = 0;
  int end = server > 0 ? (int)syscall(SYS_pidfd_open, server, 0) : -1;
  struct process_stat process;
  const int known = server > 0 && read_process_stat(server, &process) == 0;
  const uint64_t first = known ? first_tag_of(server, process.start_time) : 0;
  // Watchdogs of a cgroup may have been exiting during the last search, so search again at growing intervals.
  struct pollfd watchdogs = {.fd = channel, .events = POLLIN};
  int scan_interval_ms = cgroup->fd < 0 ? -1 : FIRST_SCAN_INTERVAL_MS;
  while (poll(&watchdogs, 1, scan_interval_ms) <= 0) {
    kill_abandoned_cgroups(cgroup);
    if (scan_interval_ms > 0 && scan_interval_ms < MAX_SCAN_INTERVAL_MS) scan_interval_ms *= 2;
  }
  while (read(channel, &more, 1) < 0 && errno == EINTR) {}
  // A server that lost both watchdogs gets a signal and kills its processes itself.
  struct pollfd ended = {.fd = end, .events = POLLIN};
  while (end >= 0 && poll(&ended, 1, -1) < 0 && errno == EINTR) {}
  kill_cgroup(cgroup);
  if (known) kill_all_tagged(first);
  remove_cgroup(cgroup);
  return 0;
}
