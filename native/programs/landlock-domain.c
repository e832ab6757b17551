#define _GNU_SOURCE
#include "landlock-domain.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/syscall-numbers.h"
#include "close-fd.h"

// The kernel's struct landlock_ruleset_attr as of Linux 6.12. Older kernels accept it if the unknown part is zero.
struct ruleset {
  uint64_t files, network, scoped;
};

// The kernel's struct landlock_path_beneath_attr.
struct __attribute__((packed)) path_rule {
  uint64_t allowed;
  int32_t directory;
};

#define VERSION_FLAG 1u
#define PATH_RULE 1
#define SCOPE_ABSTRACT_SOCKETS 1u
#define SCOPE_SIGNALS 2u

// The rights of LANDLOCK_ACCESS_FS_* that change files.
#define WRITE_FILE (1u << 1)
#define CHANGE_DIRECTORY (0x1ffu << 4)  // remove and make entries of all kinds
#define MOVE_ENTRY (1u << 13)           // version 2
#define TRUNCATE (1u << 14)             // version 3

static void allow(int ruleset, int fd, uint64_t rights) {
  const struct path_rule rule = {rights, fd};
  syscall(SYS_landlock_add_rule, ruleset, PATH_RULE, &rule, 0u);
}

void enter_landlock_domain(char* const* paths, int count) {
  const long version = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, VERSION_FLAG);
  if (version < 2) return;
  const uint64_t file_rights = WRITE_FILE | (version >= 3 ? TRUNCATE : 0u);
  const uint64_t rights = file_rights | CHANGE_DIRECTORY | MOVE_ENTRY;
  const struct ruleset rules = {rights, 0, version >= 6 ? SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS : 0u};
  int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0u);
  if (ruleset < 0) return;
  for (int at = 0; at < count; at++) {
    int fd = open(paths[at], O_PATH | O_CLOEXEC);
    if (fd < 0) continue;
    // A root may be a file.
    allow(ruleset, fd, rights);
    allow(ruleset, fd, file_rights);
    close_fd(&fd);
  }
  // A terminal of the host is below no path of the sandbox, but programs open it again as /dev/stdout.
  for (int fd = 0; fd <= 2; fd++) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) allow(ruleset, fd, file_rights);
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) syscall(SYS_landlock_restrict_self, ruleset, 0u);
  close_fd(&ruleset);
}
