#define _GNU_SOURCE
#include "server-group.h"

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

#include "../core/syscall-numbers.h"
#include "clock.h"

#define CLONE_INTO_CGROUP_FLAG 0x200000000ull

#define PREFIX "procwire-server-"
// Killed processes are gone within milliseconds; one that is not hangs in the kernel.
#define GONE_WITHIN_MS 5000
#define LOOK_EVERY_MS 2
// Another program may take a group that is not locked yet for a deserted one.
#define TRIES 3

// The kernel's struct clone_args as of Linux 5.7.
struct clone_request {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static int read_file(int directory, const char* name, char* text, size_t size) {
  int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = read(fd, text, size - 1);
  close(fd);
  if (length < 0) return -1;
  text[length] = 0;
  return 0;
}

// The path of this process's group in the version 2 hierarchy.
static int own_group(char* path, size_t size) {
  char text[8192];
  if (read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0) return -1;
  for (char* line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    if (strncmp(line, "0::", 3) != 0) continue;
    // Outside the namespace's root: it has no path here.
    if (strncmp(line + 3, "/..", 3) == 0) return -1;
    return snprintf(path, size, "%s", line + 3) < (int)size ? 0 : -1;
  }
  return -1;
}

// Where one line of mountinfo shows this group, as a directory; -1 when it does not.
static int group_in_mount(char* line, const char* group, char* path, size_t size) {
  char* type = strstr(line, " - ");
  if (!type || strncmp(type + 3, "cgroup2 ", 8) != 0) return -1;
  char root[PATH_MAX], mount_point[PATH_MAX];
  if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount_point) != 2) return -1;
  // The kernel escapes white space as \040 and the like; such a mount point is left alone.
  if (strchr(root, '\\') || strchr(mount_point, '\\')) return -1;
  size_t skipped = strcmp(root, "/") == 0 ? 0 : strlen(root);
  if (strncmp(group, root, skipped) != 0) return -1;
  return snprintf(path, size, "%s%s", mount_point, group + skipped) < (int)size ? 0 : -1;
}

static int open_own_group(void) {
  char group[PATH_MAX], path[2 * PATH_MAX];
  if (own_group(group, sizeof group) < 0) return -1;
  FILE* mounts = fopen("/proc/self/mountinfo", "re");
  if (!mounts) return -1;
  char* line = NULL;
  size_t room = 0;
  int fd = -1;
  while (fd < 0 && getline(&line, &room, mounts) >= 0)
    if (group_in_mount(line, group, path, sizeof path) == 0) fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(line);
  fclose(mounts);
  return fd;
}

// Runtimes size themselves by the limits of the very group they are in. In a group below it they would find none.
static int has_limits(int directory) {
  const char* const names[] = {"memory.max", "memory.high", "cpu.max", "pids.max"};
  for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
    char text[64];
    if (read_file(directory, names[at], text, sizeof text) == 0 && strncmp(text, "max", 3) != 0) return 1;
  }
  return 0;
}

static int open_group(int parent, const char* name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  // Locked by others: it is not deserted. Without cgroup.kill: it is gone, or the kernel is older than 5.14.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && faccessat(fd, "cgroup.kill", W_OK, 0) == 0) return fd;
  close(fd);
  return -1;
}

void make_group(struct server_group* group) {
  group->fd = -1;
  group->parent = open_own_group();
  if (group->parent < 0) return;
  for (int try = 0; group->fd < 0 && try < TRIES && !has_limits(group->parent); try++) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    snprintf(group->name, sizeof group->name, PREFIX "%d-%lld%09ld", (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    if (mkdirat(group->parent, group->name, 0755) < 0) break;
    group->fd = open_group(group->parent, group->name);
    if (group->fd < 0) unlinkat(group->parent, group->name, AT_REMOVEDIR);
  }
  if (group->fd >= 0) return;
  close(group->parent);
  group->parent = -1;
}

pid_t fork_into_group(const struct server_group* group) {
  if (group->fd >= 0) {
    struct clone_request request = {
        .flags = CLONE_INTO_CGROUP_FLAG, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group->fd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &request, sizeof request);
    if (pid >= 0) return pid;
  }
  return fork();
}

void kill_group(const struct server_group* group) {
  if (group->fd < 0) return;
  int file = openat(group->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  while (write(file, "1", 1) < 0 && errno == EINTR) {}
  close(file);
}

// Groups below it first: servers that ran inside of this one.
static void remove_below(int parent, const char* name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* below = fd < 0 ? NULL : fdopendir(fd);
  if (!below) {
    if (fd >= 0) close(fd);
    return;
  }
  const struct dirent* entry;
  while ((entry = readdir(below)))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') remove_below(dirfd(below), entry->d_name);
  closedir(below);
  unlinkat(parent, name, AT_REMOVEDIR);
}

static int is_populated(int fd) {
  char text[256];
  return read_file(fd, "cgroup.events", text, sizeof text) == 0 && strstr(text, "populated 1") != NULL;
}

void remove_group(const struct server_group* group) {
  if (group->fd < 0) return;
  for (int waited = 0; waited < GONE_WITHIN_MS && is_populated(group->fd); waited += LOOK_EVERY_MS)
    pause_ms(LOOK_EVERY_MS);
  remove_below(group->parent, group->name);
}

void end_deserted_groups(const struct server_group* group) {
  int fd = group->parent < 0 ? -1 : openat(group->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* groups = fd < 0 ? NULL : fdopendir(fd);
  if (!groups) {
    if (fd >= 0) close(fd);
    return;
  }
  const struct dirent* entry;
  while ((entry = readdir(groups))) {
    struct server_group deserted = {.parent = group->parent};
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
    if (strlen(entry->d_name) >= sizeof deserted.name || strcmp(entry->d_name, group->name) == 0) continue;
    strcpy(deserted.name, entry->d_name);
    deserted.fd = open_group(group->parent, deserted.name);
    if (deserted.fd < 0) continue;
    kill_group(&deserted);
    remove_group(&deserted);
    close(deserted.fd);
  }
  closedir(groups);
}
