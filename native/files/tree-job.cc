#include "files/tree-job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

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
  const char* name = path.empty() ? "." : path.c_str();
  return UniqueFd(openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace procwire
