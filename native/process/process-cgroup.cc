#include "process/process-cgroup.h"

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
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/fd.h"
#include "core/read-file.h"

namespace procwire {
namespace {

constexpr char kTreePrefix[] = "tree-";
constexpr char kPersistentPrefix[] = "persistent-";

// Maximum cgroups created ahead of time, enough for usual bursts of starts.
constexpr size_t kMaxPreallocated = 32;
// Maximum empty cgroups that wait for reuse. Further ones are removed.
constexpr size_t kMaxIdle = 128;
// Maximum cgroups that stay open for their next use: sequential starts need one, bursts reuse the most recent ones.
constexpr size_t kMaxOpen = 8;
// Maximum released cgroups that one start inspects before it creates a new one.
constexpr int kMaxReuseAttempts = 3;

struct Cgroup {
  std::string name;
  bool isPersistent = false;
  bool isKilled = false;
};

struct ProcessCgroups {
  std::mutex mutex;
  UniqueFd directory;
  uint64_t created = 0;
  CgroupLease lastLease = 0;
  std::unordered_map<CgroupLease, Cgroup> leased;
  std::vector<std::string> ready;     // never used
  std::vector<CgroupLease> idle;      // their processes have ended
  std::deque<CgroupLease> lingering;  // ended, but still populated at the last check
  std::deque<std::string> discarded;
  std::deque<std::pair<std::string, std::shared_ptr<const OpenCgroup>>> open;  // by name, oldest first
};

// Never destroyed, because other threads use it until the process exits.
ProcessCgroups& cgroups() {
  static ProcessCgroups* instance = new ProcessCgroups;
  return *instance;
}

UniqueFd openCgroup(int directory, const std::string& name) {
  return UniqueFd(openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Calls `visit` with the name of every direct child cgroup.
template <typename Visit>
void forEachChild(int directory, Visit visit) {
  UniqueFd fd(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueDirectory below(fd ? fdopendir(fd.get()) : nullptr);
  if (!below) return;
  // closedir closes the descriptor.
  fd.release();
  while (const dirent* entry = readdir(below.get()))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(std::string(entry->d_name));
}

bool hasChildCgroups(int fd) {
  struct stat info;
  return fstat(fd, &info) < 0 || info.st_nlink > 2;
}

// Reports whether the cgroup is empty, not frozen and without child cgroups.
bool isUnused(const OpenCgroup& cgroup) {
  constexpr std::string_view unused = "populated 0\nfrozen 0\n";
  char events[256];
  ssize_t length;
  do length = pread(cgroup.events.get(), events, sizeof events, 0);
  while (length < 0 && errno == EINTR);
  return length > 0 && std::string_view(events, static_cast<size_t>(length)) == unused &&
         !hasChildCgroups(cgroup.directory.get());
}

bool killAllInCgroup(int directory, const std::string& name) {
  const UniqueFd file(openat(directory, (name + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return false;
  ssize_t written;
  do written = write(file.get(), "1", 1);
  while (written < 0 && errno == EINTR);
  return written == 1;
}

// Returns false while the cgroup is populated.
bool removeCgroup(int directory, const std::string& name) {
  if (unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  const UniqueFd fd = openCgroup(directory, name);
  if (!fd) return errno == ENOENT;
  if (hasChildCgroups(fd.get()))
    forEachChild(fd.get(), [&fd](const std::string& below) { removeCgroup(fd.get(), below); });
  return unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

void collectPids(int fd, std::vector<pid_t>& found) {
  std::string text;
  readWholeFile(fd, "cgroup.procs", text);
  const char* at = text.c_str();
  char* end;
  for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
    at = end;
    // 0: a process of another pid namespace.
    if (pid > 0) found.push_back(static_cast<pid_t>(pid));
  }
  if (!hasChildCgroups(fd)) return;
  forEachChild(fd, [&](const std::string& name) {
    const UniqueFd below = openCgroup(fd, name);
    if (below) collectPids(below.get(), found);
  });
}

// ---- with the lock held

std::shared_ptr<const OpenCgroup> takeOpen(ProcessCgroups& all, const std::string& name) {
  const auto found = std::find_if(all.open.begin(), all.open.end(), [&](const auto& one) { return one.first == name; });
  if (found == all.open.end()) return nullptr;
  const std::shared_ptr<const OpenCgroup> cgroup = std::move(found->second);
  all.open.erase(found);
  return cgroup;
}

// Opens a cgroup that no process uses, and keeps it open. Returns null with errno set if it cannot be opened, or with
// errno 0 if it is in use.
std::shared_ptr<const OpenCgroup> openUnused(ProcessCgroups& all, const std::string& name) {
  std::shared_ptr<const OpenCgroup> cgroup = takeOpen(all, name);
  // The open one may have been removed, and another of this name created.
  if (!cgroup || !isUnused(*cgroup)) {
    UniqueFd directory = openCgroup(all.directory.get(), name);
    if (!directory) return nullptr;
    UniqueFd events(openat(directory.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
    cgroup = std::make_shared<const OpenCgroup>(OpenCgroup{std::move(directory), std::move(events)});
    if (!isUnused(*cgroup)) {
      errno = 0;
      return nullptr;
    }
  }
  if (all.open.size() == kMaxOpen) all.open.pop_front();
  all.open.emplace_back(name, cgroup);
  return cgroup;
}

void discard(ProcessCgroups& all, const std::string& name) {
  takeOpen(all, name);
  if (!removeCgroup(all.directory.get(), name)) all.discarded.push_back(name);
}

// A killed cgroup becomes empty shortly after.
void retryDiscarded(ProcessCgroups& all) {
  if (all.discarded.empty()) return;
  const std::string name = all.discarded.front();
  all.discarded.pop_front();
  discard(all, name);
}

bool createCgroup(ProcessCgroups& all, std::string& name) {
  name = kTreePrefix + std::to_string(getpid()) + "-" + std::to_string(++all.created);
  return mkdirat(all.directory.get(), name.c_str(), 0755) == 0;
}

AcquiredCgroup unavailable(int err) { return {0, nullptr, err}; }

// A cgroup that cannot be opened now, for example without a free descriptor, stays available to later starts.
AcquiredCgroup unavailable(ProcessCgroups& all, const std::string& name, int err) {
  all.ready.push_back(name);
  return unavailable(err);
}

AcquiredCgroup grantLease(ProcessCgroups& all, CgroupLease lease, const std::string& name, bool isPersistent,
                          std::shared_ptr<const OpenCgroup> cgroup) {
  all.leased[lease] = {name, isPersistent, false};
  return {lease, std::move(cgroup), 0};
}

// Removes the cgroup of an ended process and its lease, unless it is populated.
void removeReleased(ProcessCgroups& all, CgroupLease lease) {
  const auto found = all.leased.find(lease);
  takeOpen(all, found->second.name);
  if (removeCgroup(all.directory.get(), found->second.name)) all.leased.erase(found);
  else all.lingering.push_back(lease);
}

// Reuses the cgroup of an ended process if it is empty. Its old lease expires.
AcquiredCgroup reuseReleased(ProcessCgroups& all, CgroupLease lease) {
  const auto found = all.leased.find(lease);
  if (found == all.leased.end()) return {};
  const std::string name = found->second.name;
  if (found->second.isPersistent || found->second.isKilled) {
    removeReleased(all, lease);
    return {};
  }
  if (std::shared_ptr<const OpenCgroup> cgroup = openUnused(all, name)) {
    all.leased.erase(found);
    return grantLease(all, ++all.lastLease, name, false, std::move(cgroup));
  }
  if (errno == ENOENT) all.leased.erase(found);
  else all.lingering.push_back(lease);
  return {};
}

AcquiredCgroup createPersistent(ProcessCgroups& all, uint64_t treeTag) {
  const std::string name = kPersistentPrefix + std::to_string(treeTag);
  if (mkdirat(all.directory.get(), name.c_str(), 0755) < 0) return unavailable(errno);
  UniqueFd directory = openCgroup(all.directory.get(), name);
  if (!directory) {
    const int err = errno;
    discard(all, name);
    return unavailable(err);
  }
  auto cgroup = std::make_shared<const OpenCgroup>(OpenCgroup{std::move(directory), UniqueFd()});
  return grantLease(all, treeTag, name, true, std::move(cgroup));
}

}  // namespace

int openProcessCgroups(const std::string& directory, const std::vector<double>& persistentTags) {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.directory) return 0;
  UniqueFd opened(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return errno;
  const int fd = opened.get();
  // cgroup.kill exists since Linux 5.14.
  if (faccessat(fd, "cgroup.kill", W_OK, 0) < 0) return errno;
  all.directory = std::move(opened);
  for (const double number : persistentTags) {
    const CgroupLease treeTag = static_cast<CgroupLease>(number);
    all.leased[treeTag] = {kPersistentPrefix + std::to_string(treeTag), true, false};
  }
  std::vector<std::string> abandoned;
  forEachChild(fd, [&](const std::string& name) {
    const bool isOurs = name.rfind(kTreePrefix, 0) == 0 || name.rfind(kPersistentPrefix, 0) == 0;
    const bool isLeased =
        std::any_of(all.leased.begin(), all.leased.end(), [&](const auto& entry) { return entry.second.name == name; });
    if (isOurs && !isLeased) abandoned.push_back(name);
  });
  for (const std::string& name : abandoned) {
    killAllInCgroup(fd, name);
    discard(all, name);
  }
  return 0;
}

AcquiredCgroup acquireCgroup(uint64_t persistentTag) {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.directory) return {};
  retryDiscarded(all);
  if (persistentTag != 0) return createPersistent(all, persistentTag);
  for (int attempt = 0; attempt < kMaxReuseAttempts; attempt++) {
    CgroupLease lease;
    if (!all.idle.empty()) {
      // The most recent one first, because it is still in kernel caches.
      lease = all.idle.back();
      all.idle.pop_back();
    } else if (!all.lingering.empty()) {
      lease = all.lingering.front();
      all.lingering.pop_front();
    } else {
      break;
    }
    AcquiredCgroup acquired = reuseReleased(all, lease);
    if (acquired.cgroup) return acquired;
  }
  while (!all.ready.empty()) {
    const std::string name = all.ready.back();
    all.ready.pop_back();
    if (auto cgroup = openUnused(all, name)) return grantLease(all, ++all.lastLease, name, false, std::move(cgroup));
    if (errno != 0 && errno != ENOENT) return unavailable(all, name, errno);
    // Another process has changed the cgroup.
    discard(all, name);
  }
  std::string name;
  if (!createCgroup(all, name)) return unavailable(errno);
  if (auto cgroup = openUnused(all, name)) return grantLease(all, ++all.lastLease, name, false, std::move(cgroup));
  return unavailable(all, name, errno);
}

void discardCgroup(CgroupLease lease) {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.leased.find(lease);
  if (found == all.leased.end()) return;
  const std::string name = found->second.name;
  all.leased.erase(found);
  discard(all, name);
}

void releaseCgroup(CgroupLease lease) {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.leased.find(lease);
  if (found == all.leased.end()) return;
  retryDiscarded(all);
  if (found->second.isPersistent || found->second.isKilled || all.idle.size() >= kMaxIdle) removeReleased(all, lease);
  else all.idle.push_back(lease);
}

std::vector<pid_t> cgroupPids(CgroupLease lease) {
  std::vector<pid_t> found;
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto entry = all.leased.find(lease);
  if (entry == all.leased.end()) return found;
  const UniqueFd fd = openCgroup(all.directory.get(), entry->second.name);
  if (fd) collectPids(fd.get(), found);
  return found;
}

void killCgroup(CgroupLease lease) {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.leased.find(lease);
  if (found == all.leased.end()) return;
  found->second.isKilled = true;
  killAllInCgroup(all.directory.get(), found->second.name);
}

bool preallocateCgroup() {
  ProcessCgroups& all = cgroups();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.directory || all.ready.size() + all.idle.size() >= kMaxPreallocated) return false;
  std::string name;
  if (!createCgroup(all, name)) return false;
  all.ready.push_back(name);
  return true;
}

}  // namespace procwire
