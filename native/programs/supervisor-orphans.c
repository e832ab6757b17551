#define _GNU_SOURCE
#include "supervisor-orphans.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "../core/process-stat.h"
#include "../process/tree-tag-values.h"
#include "close-fd.h"
#include "persistent-process.h"
#include "server-channel.h"
#include "server-lifecycle.h"

// Maximum orphans reaped at a time.
#define MAX_ORPHANS 256
#define SWEEP_MS 10000
#define SWEEP_PAUSE_MS 2

// ---- classification

// Limits that carry the tree tag (native/process/tree-tag.cc): one of two limits without effect, and the tag check in a
// third.
struct tag_limits {
  uint64_t locks, resident, check;
};

#define UNLIMITED UINT64_MAX

static uint64_t limit_in(const char* text, const char* name) {
  const char* line = strstr(text, name);
  if (!line) return UNLIMITED;
  line += strlen(name);
  line += strspn(line, " ");
  return *line == 'u' ? UNLIMITED : strtoull(line, NULL, 10);
}

static struct tag_limits read_tag_limits(pid_t pid) {
  uint64_t locks[2], resident[2], check[2];
  char path[32], text[4096];
  if (syscall(SYS_prlimit64, pid, RLIMIT_LOCKS, NULL, locks) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RSS, NULL, resident) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RTTIME, NULL, check) == 0)
    return (struct tag_limits){locks[0], resident[0], check[0]};
  // A process of another user.
  snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  close_fd(&fd);
  text[length > 0 ? length : 0] = 0;
  return (struct tag_limits){limit_in(text, "Max file locks"), limit_in(text, "Max resident set"),
                             limit_in(text, "Max realtime timeout")};
}

// The server uses a limit if its own is free, and its own limits are those of the supervisor.
static int is_free(int resource) {
  uint64_t own[2];
  return syscall(SYS_prlimit64, 0, resource, NULL, own) == 0 && own[0] == UNLIMITED;
}

static int has_tree_tag(const struct tag_limits* limits, const struct persistent_process* process) {
  uint64_t tag = process->header->tree_tag;
  if (tag == 0) return 0;
  if (!is_free(RLIMIT_LOCKS)) return limits->resident == tag;
  // A process that copied this tag does not have the matching tag check.
  const int has_tag_check = limits->check == tag_check_of(tag) || limits->check == UNLIMITED;
  return limits->locks == tag && (has_tag_check || !is_free(RLIMIT_RTTIME));
}

// Reports whether the process is a persistent leader or, unless `leaders_only`, an orphaned descendant of one.
static int is_persistent(pid_t pid, int leaders_only) {
  struct tag_limits limits = {0, 0, 0};
  pid_t session = leaders_only ? -1 : getsid(pid);
  if (!leaders_only) limits = read_tag_limits(pid);
  for (const struct persistent_process* process = first_persistent; process; process = process->next) {
    if (has_tree_tag(&limits, process)) return 1;
    // The pid of a reaped process may be reused.
    if (has_pid(process) && (process->header->pid == pid || process->header->pid == session)) return 1;
  }
  return 0;
}

static pid_t parent_of(pid_t pid) {
  struct process_stat process;
  return read_process_stat(pid, &process) < 0 ? -1 : process.parent;
}

// Calls `visit` with each child. Scans /proc if the kernel has no list of children.
static void for_each_child(void (*visit)(pid_t child, int* count), int* count) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE* list = fopen(path, "re");
  int pid;
  if (list) {
    while (fscanf(list, "%d", &pid) == 1) visit(pid, count);
    fclose(list);
    return;
  }
  DIR* processes = opendir("/proc");
  const struct dirent* entry;
  while (processes && (entry = readdir(processes)))
    if ((pid = atoi(entry->d_name)) > 0 && parent_of(pid) == getpid()) visit(pid, count);
  if (processes) closedir(processes);
}

// Dead children that are not persistent.
static pid_t orphans[MAX_ORPHANS];

static void note_orphan(pid_t child, int* count) {
  siginfo_t info = {0};
  if (*count == MAX_ORPHANS || child == server_pid() || is_persistent(child, 1)) return;
  if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child)
    orphans[(*count)++] = child;
}

// Set if dead children may remain unreaped.
static int has_deferred;

// A dead child may be a persistent process whose packets are still unread. The server sends STARTING before each start.
// So the supervisor reads the packets after it has found the child dead, and reaps no child while a start is in flight.
void reap_orphans(void) {
  int count;
  do {
    count = 0;
    for_each_child(note_orphan, &count);
    if (count > 0) read_packets();
    has_deferred = count > 0 && starts_in_flight() > 0;
    for (int at = 0; at < count && !has_deferred; at++)
      if (!is_persistent(orphans[at], 1)) waitpid(orphans[at], NULL, WNOHANG);
  } while (count == MAX_ORPHANS && !has_deferred);
}

void reap_deferred(void) {
  if (has_deferred && starts_in_flight() == 0) reap_orphans();
}

static void kill_if_not_persistent(pid_t child, int* count) {
  if (child == server_pid() || is_persistent(child, 0)) return;
  // The child is not reaped yet, so its pid is valid. Its children are reparented to the supervisor.
  kill(child, SIGKILL);
  waitpid(child, NULL, WNOHANG);
  (*count)++;
}

void kill_non_persistent(void) {
  for (long long until = now_ms() + SWEEP_MS; now_ms() < until; pause_ms(SWEEP_PAUSE_MS)) {
    int count = 0;
    for_each_child(kill_if_not_persistent, &count);
    if (count == 0) return;
  }
}
