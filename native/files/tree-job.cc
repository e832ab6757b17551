#include "files/tree-job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/syscall-numbers.h"

namespace procwire {
namespace {

// Trees that are processed at once. Further jobs wait.
constexpr size_t kMaxThreads = 4;

EntryKind kindOf(int directory, const struct dirent& entry) {
  switch (entry.d_type) {
    case DT_REG: return EntryKind::kFile;
    case DT_DIR: return EntryKind::kDirectory;
    case DT_LNK: return EntryKind::kLink;
    case DT_UNKNOWN: break;
    default: return EntryKind::kOther;
  }
  // The file system does not report kinds.
  struct stat found;
  if (fstatat(directory, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) return EntryKind::kOther;
  if (S_ISREG(found.st_mode)) return EntryKind::kFile;
  if (S_ISDIR(found.st_mode)) return EntryKind::kDirectory;
  return S_ISLNK(found.st_mode) ? EntryKind::kLink : EntryKind::kOther;
}

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The kernel's struct open_how as of Linux 5.6, and values of `resolve`.
struct OpenHow {
  uint64_t flags, mode, resolve;
};
constexpr uint64_t kResolveNoSymlinks = 0x04;
constexpr uint64_t kResolveBeneath = 0x08;

UniqueFd openByComponents(int root, const std::string& path) {
  UniqueFd directory;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string name = path.substr(start, end - start);
    directory = UniqueFd(openat(directory ? directory.get() : root, name.c_str(), kDirectoryFlags));
    if (!directory) break;
    start = end + 1;
  }
  return directory;
}

}  // namespace

JobQueue& treeJobs() {
  static JobQueue* const shared = new JobQueue("procwire-tree", kMaxThreads);
  return *shared;
}

// `src/native/addon.ts` declares the result as NativeTreeResult.
void TreeJob::deliver(Loop& loop) {
  napi_env env = loop.env();
  HandleScope scope(env);
  ObjectBuilder value(env);
  value.set("errno", nonZero(result.err));
  value.set("failure", nonZero(static_cast<int>(result.failure)));
  napi_value path = nullptr;
  if (copyToBuffer(env, result.path.data(), result.path.size(), path)) value.set("path", path);
  napi_value argument = value.get();
  napi_value done = onDone.get();
  onDone.reset();
  loop.call(done, 1, &argument);
}

int readEntries(int directory, std::vector<TreeEntry>& entries) {
  entries.clear();
  const UniqueDirectory listing = listingOf(UniqueFd(fcntl(directory, F_DUPFD_CLOEXEC, 0)));
  if (!listing) return errno;
  // The copy shares the position of the descriptor.
  rewinddir(listing.get());
  for (;;) {
    errno = 0;
    const struct dirent* entry = readdir(listing.get());
    if (!entry) return errno;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    entries.push_back({entry->d_name, kindOf(directory, *entry)});
  }
}

UniqueFd openDirectory(int root, const std::string& path) {
  if (path.empty()) return UniqueFd(openat(root, ".", kDirectoryFlags));
  OpenHow how = {kDirectoryFlags, 0, kResolveNoSymlinks | kResolveBeneath};
  UniqueFd opened(static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
  // ENOSYS and EPERM: the kernel or a seccomp filter does not support the call. ENAMETOOLONG: the tree is deep.
  if (!opened && (errno == ENOSYS || errno == EPERM || errno == ENAMETOOLONG)) return openByComponents(root, path);
  return opened;
}

}  // namespace procwire
