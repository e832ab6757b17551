#include "process/tree-group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "core/fd.h"
#include "core/small-file.h"

namespace procwire {
namespace {

constexpr char kTreePrefix[] = "tree-";
constexpr char kKeptPrefix[] = "kept-";

// Made while no program is to be started: as many as usual bursts need.
constexpr size_t kAhead = 32;
// As many empty groups wait for programs; further ones are removed.
constexpr size_t kMostIdle = 128;
// Of the groups that were left, this many are looked at for one start before one is made.
constexpr int kMostLooks = 3;

struct Group {
  std::string name;
  bool isKept = false;
  bool isKilled = false;
};

struct TreeGroups {
  std::mutex mutex;
  int directory = -1;
  uint64_t made = 0;
  GroupLease lastLease = 0;
  std::unordered_map<GroupLease, Group> leased;
  std::vector<std::string> ready;    // nobody was in them yet
  std::vector<GroupLease> idle;      // their programs have ended
  std::deque<GroupLease> lingering;  // the same, and something was still there at the last look
  std::deque<std::string> discarded;
};

// Never destroyed: other threads use it until the program is gone.
TreeGroups& groups() {
  static TreeGroups* only = new TreeGroups;
  return *only;
}

int openGroup(int directory, const std::string& name) {
  return openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Calls `visit` with the name of every group directly below.
template <typename Visit>
void eachBelow(int directory, Visit visit) {
  const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* below = fd < 0 ? nullptr : fdopendir(fd);
  if (!below) {
    if (fd >= 0) close(fd);
    return;
  }
  while (const dirent* entry = readdir(below))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(std::string(entry->d_name));
  closedir(below);
}

bool hasGroupsBelow(int fd) {
  struct stat info;
  return fstat(fd, &info) < 0 || info.st_nlink > 2;
}

// Nobody is in it, it is not frozen, and has no groups of its own.
bool isUnused(int fd) {
  std::string events;
  return readSmallFile(fd, "cgroup.events", events) && events == "populated 0\nfrozen 0\n" && !hasGroupsBelow(fd);
}

bool killAllIn(int directory, const std::string& name) {
  const int file = openat(directory, (name + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t written;
  do written = write(file, "1", 1);
  while (written < 0 && errno == EINTR);
  close(file);
  return written == 1;
}

// False while somebody is in it.
bool removeGroup(int directory, const std::string& name) {
  if (unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  int fd = openGroup(directory, name);
  if (fd < 0) return errno == ENOENT;
  if (hasGroupsBelow(fd)) eachBelow(fd, [fd](const std::string& below) { removeGroup(fd, below); });
  close(fd);
  return unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

void addPids(int fd, std::vector<pid_t>& found) {
  std::string text;
  readSmallFile(fd, "cgroup.procs", text);
  const char* at = text.c_str();
  char* end;
  for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
    at = end;
    // 0: a process of another namespace.
    if (pid > 0) found.push_back(static_cast<pid_t>(pid));
  }
  if (!hasGroupsBelow(fd)) return;
  eachBelow(fd, [&](const std::string& name) {
    int below = openGroup(fd, name);
    if (below >= 0) addPids(below, found);
    closeFd(below);
  });
}

// ---- with the lock held

void discard(TreeGroups& all, const std::string& name) {
  if (!removeGroup(all.directory, name)) all.discarded.push_back(name);
}

// One that was killed is empty a moment later.
void retryDiscarded(TreeGroups& all) {
  if (all.discarded.empty()) return;
  const std::string name = all.discarded.front();
  all.discarded.pop_front();
  discard(all, name);
}

bool makeOne(TreeGroups& all, std::string& name) {
  name = kTreePrefix + std::to_string(getpid()) + "-" + std::to_string(++all.made);
  return mkdirat(all.directory, name.c_str(), 0755) == 0;
}

TakenGroup lease(TreeGroups& all, GroupLease number, const std::string& name, bool isKept, int fd) {
  all.leased[number] = {name, isKept, false};
  return {number, fd, 0};
}

// Removes the group of an ended program if nobody is in it, and its lease with it.
void removeLeft(TreeGroups& all, GroupLease number) {
  const auto found = all.leased.find(number);
  if (removeGroup(all.directory, found->second.name)) all.leased.erase(found);
  else all.lingering.push_back(number);
}

// The group of this ended program if it can be had; its lease ends then.
TakenGroup takeLeft(TreeGroups& all, GroupLease number) {
  const auto found = all.leased.find(number);
  if (found == all.leased.end()) return {};
  const std::string name = found->second.name;
  if (found->second.isKept || found->second.isKilled) {
    removeLeft(all, number);
    return {};
  }
  int fd = openGroup(all.directory, name);
  if (fd >= 0 && isUnused(fd)) {
    all.leased.erase(found);
    return lease(all, ++all.lastLease, name, false, fd);
  }
  if (fd < 0 && errno == ENOENT) all.leased.erase(found);
  else all.lingering.push_back(number);
  closeFd(fd);
  return {};
}

TakenGroup takeKept(TreeGroups& all, uint64_t mark) {
  const std::string name = kKeptPrefix + std::to_string(mark);
  if (mkdirat(all.directory, name.c_str(), 0755) < 0) return {0, -1, errno};
  const int fd = openGroup(all.directory, name);
  return fd < 0 ? TakenGroup{0, -1, errno} : lease(all, mark, name, true, fd);
}

}  // namespace

int openTreeGroups(const std::string& directory, const std::vector<double>& keptMarks) {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  if (all.directory >= 0) return 0;
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  // Not there before Linux 5.14.
  if (faccessat(fd, "cgroup.kill", W_OK, 0) < 0) {
    const int err = errno;
    close(fd);
    return err;
  }
  all.directory = fd;
  for (const double number : keptMarks) {
    const GroupLease mark = static_cast<GroupLease>(number);
    all.leased[mark] = {kKeptPrefix + std::to_string(mark), true, false};
  }
  std::vector<std::string> left;
  eachBelow(fd, [&](const std::string& name) {
    const bool isOurs = name.rfind(kTreePrefix, 0) == 0 || name.rfind(kKeptPrefix, 0) == 0;
    const bool isLeased =
        std::any_of(all.leased.begin(), all.leased.end(), [&](const auto& entry) { return entry.second.name == name; });
    if (isOurs && !isLeased) left.push_back(name);
  });
  for (const std::string& name : left) {
    killAllIn(fd, name);
    discard(all, name);
  }
  return 0;
}

TakenGroup takeTreeGroup(uint64_t keptMark) {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  if (all.directory < 0) return {};
  retryDiscarded(all);
  if (keptMark != 0) return takeKept(all, keptMark);
  for (int look = 0; look < kMostLooks; look++) {
    GroupLease number;
    if (!all.idle.empty()) {
      // The last one first: the kernel still has it at hand.
      number = all.idle.back();
      all.idle.pop_back();
    } else if (!all.lingering.empty()) {
      number = all.lingering.front();
      all.lingering.pop_front();
    } else {
      break;
    }
    const TakenGroup taken = takeLeft(all, number);
    if (taken.fd >= 0) return taken;
  }
  while (!all.ready.empty()) {
    const std::string name = all.ready.back();
    all.ready.pop_back();
    int fd = openGroup(all.directory, name);
    if (fd >= 0 && isUnused(fd)) return lease(all, ++all.lastLease, name, false, fd);
    if (fd < 0 && errno != ENOENT) return {0, -1, errno};
    // Somebody else has done something to it.
    closeFd(fd);
    discard(all, name);
  }
  std::string name;
  if (!makeOne(all, name)) return {0, -1, errno};
  const int fd = openGroup(all.directory, name);
  return fd < 0 ? TakenGroup{0, -1, errno} : lease(all, ++all.lastLease, name, false, fd);
}

void dropTreeGroup(GroupLease number) {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  const auto found = all.leased.find(number);
  if (found == all.leased.end()) return;
  const std::string name = found->second.name;
  all.leased.erase(found);
  discard(all, name);
}

void leaveTreeGroup(GroupLease number) {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  const auto found = all.leased.find(number);
  if (found == all.leased.end()) return;
  retryDiscarded(all);
  if (found->second.isKept || found->second.isKilled || all.idle.size() >= kMostIdle) removeLeft(all, number);
  else all.idle.push_back(number);
}

std::vector<pid_t> treeGroupPids(GroupLease number) {
  std::vector<pid_t> found;
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  const auto entry = all.leased.find(number);
  if (entry == all.leased.end()) return found;
  int fd = openGroup(all.directory, entry->second.name);
  if (fd >= 0) addPids(fd, found);
  closeFd(fd);
  return found;
}

void killTreeGroup(GroupLease number) {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  const auto found = all.leased.find(number);
  if (found == all.leased.end()) return;
  found->second.isKilled = true;
  killAllIn(all.directory, found->second.name);
}

bool makeTreeGroupAhead() {
  TreeGroups& all = groups();
  const std::lock_guard<std::mutex> held(all.mutex);
  if (all.directory < 0 || all.ready.size() + all.idle.size() >= kAhead) return false;
  std::string name;
  if (!makeOne(all, name)) return false;
  all.ready.push_back(name);
  return true;
}

}  // namespace procwire
