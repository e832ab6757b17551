#define _GNU_SOURCE
#include "server-cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "../core/syscall-numbers.h"
#include "close-fd.h"

#define CLONE_INTO_CGROUP_FLAG 0x200000000ull

#define PREFIX "procwire-server-"
// Maximum time until a killed cgroup is empty. Processes exit within milliseconds unless they hang in the kernel.
#define EMPTY_TIMEOUT_MS 5000
#define POLL_INTERVAL_MS 2
// Maximum attempts to create a cgroup. Until it is locked, another watchdog may remove it as abandoned.
#define MAX_ATTEMPTS 3

// The kernel's struct clone_args as of Linux 5.7.
struct clone_request {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static int read_file(int directory, const char* name, char* text, size_t size) {
  int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = read(fd, text, size - 1);
  close_fd(&fd);
  if (length < 0) return -1;
  text[length] = 0;
  return 0;
}

// Reads the path of this process's cgroup in the version 2 hierarchy.
static int read_own_cgroup(char* path, size_t size) {
  char text[8192];
  if (read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0) return -1;
  for (char* line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    if (strncmp(line, "0::", 3) != 0) continue;
    // Outside of the namespace root, so it has no path here.
    if (strncmp(line + 3, "/..", 3) == 0) return -1;
    return snprintf(path, size, "%s", line + 3) < (int)size ? 0 : -1;
  }
  return -1;
}

// Returns the directory of the cgroup in the mount of this mountinfo line, or -1 if the mount does not show it.
static int find_cgroup_in_mount(char* line, const char* cgroup, char* path, size_t size) {
  char* type = strstr(line, " - ");
  if (!type || strncmp(type + 3, "cgroup2 ", 8) != 0) return -1;
  char root[PATH_MAX], mount_point[PATH_MAX];
  if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount_point) != 2) return -1;
  // The kernel escapes white space as \040. Such mount points are skipped.
  if (strchr(root, '\\') || strchr(mount_point, '\\')) return -1;
  size_t skipped = strcmp(root, "/") == 0 ? 0 : strlen(root);
  if (strncmp(cgroup, root, skipped) != 0) return -1;
  return snprintf(path, size, "%s%s", mount_point, cgroup + skipped) < (int)size ? 0 : -1;
}

static int open_own_cgroup(void) {
  char cgroup[PATH_MAX], path[2 * PATH_MAX];
  if (read_own_cgroup(cgroup, sizeof cgroup) < 0) return -1;
  FILE* mounts = fopen("/proc/self/mountinfo", "re");
  if (!mounts) return -1;
  char* line = NULL;
  size_t capacity = 0;
  int fd = -1;
  while (fd < 0 && getline(&line, &capacity, mounts) >= 0)
    if (find_cgroup_in_mount(line, cgroup, path, sizeof path) == 0) fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(line);
  fclose(mounts);
  return fd;
}

// Reports whether the cgroup has limits. Language runtimes size themselves by the limits of the cgroup that they are
// in, and would find none in a child cgroup.
static int has_limits(int directory) {
  const char* const names[] = {"memory.max", "memory.high", "cpu.max", "pids.max"};
  for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
    char text[64];
    if (read_file(directory, names[at], text, sizeof text) == 0 && strncmp(text, "max", 3) != 0) return 1;
  }
  return 0;
}

static int open_cgroup(int parent, const char* name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  // A locked cgroup is in use. Without cgroup.kill it was removed, or the kernel is older than 5.14.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && faccessat(fd, "cgroup.kill", W_OK, 0) == 0) return fd;
  close_fd(&fd);
  return -1;
}

void create_server_cgroup(struct server_cgroup* cgroup) {
  cgroup->fd = -1;
  cgroup->parent = open_own_cgroup();
  if (cgroup->parent < 0) return;
  for (int attempt = 0; cgroup->fd < 0 && attempt < MAX_ATTEMPTS && !has_limits(cgroup->parent); attempt++) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    snprintf(cgroup->name, sizeof cgroup->name, PREFIX "%d-%lld%09ld", (int)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    if (mkdirat(cgroup->parent, cgroup->name, 0755) < 0) break;
    cgroup->fd = open_cgroup(cgroup->parent, cgroup->name);
    if (cgroup->fd < 0) unlinkat(cgroup->parent, cgroup->name, AT_REMOVEDIR);
  }
  if (cgroup->fd >= 0) return;
  close_fd(&cgroup->parent);
}

pid_t fork_into_cgroup(const struct server_cgroup* cgroup) {
  if (cgroup->fd >= 0) {
    struct clone_request request = {
        .flags = CLONE_INTO_CGROUP_FLAG, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup->fd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &request, sizeof request);
    if (pid >= 0) return pid;
  }
  return fork();
}

void kill_cgroup(const struct server_cgroup* cgroup) {
  if (cgroup->fd < 0) return;
  int file = openat(cgroup->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  while (write(file, "1", 1) < 0 && errno == EINTR) {}
  close_fd(&file);
}

// Removes child cgroups first: those of servers that ran inside of this one.
static void remove_subtree(int parent, const char* name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* below = fd < 0 ? NULL : fdopendir(fd);
  if (!below) {
    close_fd(&fd);
    return;
  }
  const struct dirent* entry;
  while ((entry = readdir(below)))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') remove_subtree(dirfd(below), entry->d_name);
  closedir(below);
  unlinkat(parent, name, AT_REMOVEDIR);
}

static int is_populated(int fd) {
  char text[256];
  return read_file(fd, "cgroup.events", text, sizeof text) == 0 && strstr(text, "populated 1") != NULL;
}

void remove_cgroup(const struct server_cgroup* cgroup) {
  if (cgroup->fd < 0) return;
  for (int waited = 0; waited < EMPTY_TIMEOUT_MS && is_populated(cgroup->fd); waited += POLL_INTERVAL_MS)
    pause_ms(POLL_INTERVAL_MS);
  remove_subtree(cgroup->parent, cgroup->name);
}

void kill_abandoned_cgroups(const struct server_cgroup* cgroup) {
  int fd = cgroup->parent < 0 ? -1 : openat(cgroup->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* cgroups = fd < 0 ? NULL : fdopendir(fd);
  if (!cgroups) {
    close_fd(&fd);
    return;
  }
  const struct dirent* entry;
  while ((entry = readdir(cgroups))) {
    struct server_cgroup abandoned = {.parent = cgroup->parent};
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
    if (strlen(entry->d_name) >= sizeof abandoned.name || strcmp(entry->d_name, cgroup->name) == 0) continue;
    strcpy(abandoned.name, entry->d_name);
    abandoned.fd = open_cgroup(cgroup->parent, abandoned.name);
    if (abandoned.fd < 0) continue;
    kill_cgroup(&abandoned);
    remove_cgroup(&abandoned);
    close_fd(&abandoned.fd);
  }
  closedir(cgroups);
}
