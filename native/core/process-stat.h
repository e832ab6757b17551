// Fields of /proc/PID/stat, see proc_pid_stat(5). In C, because the watchdog and the supervisor read them too.
#ifndef PROCWIRE_CORE_PROCESS_STAT_H
#define PROCWIRE_CORE_PROCESS_STAT_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct process_stat {
  char state;
  pid_t parent;
  pid_t group;
  pid_t session;
  unsigned long long start_time;  // clock ticks since boot
};

// Returns -1 if the process does not exist.
static inline int read_process_stat(pid_t pid, struct process_stat* process) {
  char path[32];
  char text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return -1;
  text[length] = 0;
  // The process name is in parentheses and may itself contain parentheses.
  const char* name_end = strrchr(text, ')');
  if (!name_end) return -1;
  const int fields =
      sscanf(name_end + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &process->state, &process->parent, &process->group, &process->session, &process->start_time);
  return fields == 5 ? 0 : -1;
}

#endif
