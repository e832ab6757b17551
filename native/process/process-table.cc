// Reads the process table from /proc. Nothing here blocks, and nothing is cached between calls.
#include "process/process-table.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "core/fd.h"
#include "core/process-stat.h"
#include "core/read-file.h"
#include "core/syscall-numbers.h"

namespace procwire {
namespace {

// Calls `visit` with each numeric entry name of the directory.
template <typename Visit>
void forEachNumber(const char* path, Visit visit) {
  const UniqueDirectory directory(opendir(path));
  if (!directory) return;
  while (const dirent* entry = readdir(directory.get())) {
    char* end;
    long number = strtol(entry->d_name, &end, 10);
    if (end != entry->d_name && *end == 0) visit(static_cast<int>(number));
  }
}

// Returns all processes of the host.
std::vector<ProcessEntry> allProcesses() {
  std::vector<ProcessEntry> found;
  forEachNumber("/proc", [&found](int pid) {
    ProcessEntry entry;
    if (readEntry(pid, entry)) found.push_back(entry);
  });
  return found;
}

// Kernels may be built without the children files.
bool hasChildrenFiles() {
  static bool have = [] {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", getpid(), getpid());
    return access(path, R_OK) == 0;
  }();
  return have;
}

}  // namespace

bool readEntry(pid_t pid, ProcessEntry& entry) {
  struct process_stat stat;
  if (read_process_stat(pid, &stat) < 0) return false;
  const bool zombie = stat.state == 'Z' || stat.state == 'X';
  entry = {pid, stat.parent, stat.group, stat.session, stat.start_time, zombie};
  return true;
}

std::vector<pid_t> childPids(pid_t pid, const std::vector<pid_t>& except) {
  std::vector<pid_t> found;
  if (!hasChildrenFiles()) {
    // Without these files the parent thread of a child is unknown. Returning none is the safe choice.
    if (!except.empty()) return found;
    for (const ProcessEntry& entry : allProcesses())
      if (entry.parent == pid) found.push_back(entry.pid);
    return found;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  // The kernel lists a child under the thread that started it.
  forEachNumber(path, [&](int thread) {
    if (std::find(except.begin(), except.end(), thread) != except.end()) return;
    char list[64];
    snprintf(list, sizeof list, "/proc/%d/task/%d/children", pid, thread);
    std::string text;
    if (!readWholeFile(AT_FDCWD, list, text)) return;
    const char* at = text.c_str();
    char* end;
    for (long child = strtol(at, &end, 10); end != at; child = strtol(at, &end, 10)) {
      at = end;
      found.push_back(static_cast<pid_t>(child));
    }
  });
  return found;
}

std::vector<ProcessEntry> descendantsOf(pid_t pid) {
  std::vector<ProcessEntry> found;
  const auto addChildren = [&found](pid_t parent) {
    for (pid_t child : childPids(parent)) {
      ProcessEntry entry;
      if (readEntry(child, entry)) found.push_back(entry);
    }
  };
  addChildren(pid);
  for (size_t at = 0; at < found.size(); at++) addChildren(found[at].pid);
  return found;
}

bool hasStdioOpen(pid_t pid, const std::vector<uint64_t>& pipes, int pts) {
  char directory[32];
  snprintf(directory, sizeof directory, "/proc/%d/fd", pid);
  char terminal[32] = "";
  if (pts >= 0) snprintf(terminal, sizeof terminal, "/dev/pts/%d", pts);
  bool isOpen = false;
  forEachNumber(directory, [&](int fd) {
    if (isOpen) return;
    char path[64];
    char target[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return;
    target[length] = 0;
    if (pts >= 0 && strcmp(target, terminal) == 0) isOpen = true;
    unsigned long long inode;
    if (sscanf(target, "pipe:[%llu]", &inode) != 1) return;
    if (std::find(pipes.begin(), pipes.end(), inode) != pipes.end()) isOpen = true;
  });
  return isOpen;
}

int signalProcess(pid_t pid, uint64_t startTime, int signal) {
  const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd && errno == ESRCH) return ESRCH;
  ProcessEntry entry;
  bool same = readEntry(pid, entry) && entry.startTime == startTime;
  int result = -1;
  errno = ESRCH;
  // The pidfd was opened before the check, so the checked process is the signaled one.
  if (same)
    result = fd ? static_cast<int>(syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0)) : kill(pid, signal);
  return result == 0 ? 0 : errno;
}

int setSubreaper(bool on) { return prctl(PR_SET_CHILD_SUBREAPER, on ? 1 : 0, 0, 0, 0) == 0 ? 0 : errno; }

bool reapChild(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) == 0 && info.si_pid == pid;
}

}  // namespace procwire
