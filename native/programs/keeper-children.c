#define _GNU_SOURCE
#include "keeper-children.h"

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

#include "../process/mark-numbers.h"
#include "clock.h"
#include "kept-process.h"
#include "server-channel.h"
#include "server-life.h"

// As many are reaped at a time.
#define MOST_STRANGERS 256
#define SWEEP_MS 10000
#define SWEEP_PAUSE_MS 2

// ---- whose they are

// Where the mark of the server's processes may be (native/process/mark.cc): one of two resource limits without effect,
// and its other half in a third.
struct marks {
  uint64_t locks, resident, witness;
};

#define UNLIMITED UINT64_MAX

static uint64_t limit_in(const char* text, const char* name) {
  const char* line = strstr(text, name);
  if (!line) return UNLIMITED;
  line += strlen(name);
  line += strspn(line, " ");
  return *line == 'u' ? UNLIMITED : strtoull(line, NULL, 10);
}

static struct marks marks_of(pid_t pid) {
  uint64_t locks[2], resident[2], witness[2];
  char path[32], text[4096];
  if (syscall(SYS_prlimit64, pid, RLIMIT_LOCKS, NULL, locks) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RSS, NULL, resident) == 0 &&
      syscall(SYS_prlimit64, pid, RLIMIT_RTTIME, NULL, witness) == 0)
    return (struct marks){locks[0], resident[0], witness[0]};
  // A process of another user.
  snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  close_fd(&fd);
  text[length > 0 ? length : 0] = 0;
  return (struct marks){limit_in(text, "Max file locks"), limit_in(text, "Max resident set"),
                        limit_in(text, "Max realtime timeout")};
}

// The server uses a limit where its own is free, and its own is this program's.
static int is_free(int resource) {
  uint64_t own[2];
  return syscall(SYS_prlimit64, 0, resource, NULL, own) == 0 && own[0] == UNLIMITED;
}

static int carries(const struct marks* marks, const struct kept* kept) {
  uint64_t mark = kept->memory->mark;
  if (mark == 0) return 0;
  if (!is_free(RLIMIT_LOCKS)) return marks->resident == mark;
  // One that has taken this mark in place of its own has not got the other half.
  const int is_whole = marks->witness == witness_of(mark) || marks->witness == UNLIMITED;
  return marks->locks == mark && (is_whole || !is_free(RLIMIT_RTTIME));
}

// Whether it is a kept process's leader, or one of its descendants that has lost its parent.
static int is_kept(pid_t pid, int leaders_only) {
  struct marks marks = {0, 0, 0};
  pid_t session = leaders_only ? -1 : getsid(pid);
  if (!leaders_only) marks = marks_of(pid);
  for (const struct kept* kept = first_kept; kept; kept = kept->next) {
    if (carries(&marks, kept)) return 1;
    // The pid of a process that was reaped may have been reused.
    if (has_pid(kept) && (kept->memory->pid == pid || kept->memory->pid == session)) return 1;
  }
  return 0;
}

static pid_t parent_of(pid_t pid) {
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  close_fd(&fd);
  if (length <= 0) return -1;
  text[length] = 0;
  const char* name_end = strrchr(text, ')');
  int parent = -1;
  return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

// Calls back with each child; where the kernel has no list of them, by reading every process.
static void each_child(void (*visit)(pid_t child, int* count), int* count) {
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

// Dead children that are not known as kept.
static pid_t strangers[MOST_STRANGERS];

static void note_stranger(pid_t child, int* count) {
  siginfo_t info = {0};
  if (*count == MOST_STRANGERS || child == server_pid() || is_kept(child, 1)) return;
  if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child)
    strangers[(*count)++] = child;
}

// Set when there may be dead children that were not reaped.
static int is_unfinished;

// One of them may have been started to be kept, and the server's messages about it not be read yet. The first was sent
// before it was started: so they are all read after it was seen dead, and while a start is under way nobody is reaped.
void reap_strangers(void) {
  int count;
  do {
    count = 0;
    each_child(note_stranger, &count);
    if (count > 0) read_packets();
    is_unfinished = count > 0 && starts_under_way() > 0;
    for (int at = 0; at < count && !is_unfinished; at++)
      if (!is_kept(strangers[at], 1)) waitpid(strangers[at], NULL, WNOHANG);
  } while (count == MOST_STRANGERS && !is_unfinished);
}

void reap_rest(void) {
  if (is_unfinished && starts_under_way() == 0) reap_strangers();
}

static void kill_unkept(pid_t child, int* count) {
  if (child == server_pid() || is_kept(child, 0)) return;
  // Our child and not reaped, so the pid is its own. Its children come here when it is gone.
  kill(child, SIGKILL);
  waitpid(child, NULL, WNOHANG);
  (*count)++;
}

void sweep_unkept(void) {
  for (long long until = now_ms() + SWEEP_MS; now_ms() < until; pause_ms(SWEEP_PAUSE_MS)) {
    int count = 0;
    each_child(kill_unkept, &count);
    if (count == 0) return;
  }
}
