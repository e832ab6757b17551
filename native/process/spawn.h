// Starting a program: a few permanent threads, each of which does one vfork at a time.
#ifndef PROCWIRE_SPAWN_H
#define PROCWIRE_SPAWN_H

#include <node_api.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mailbox.h"
#include "process/exec-child.h"
#include "process/kept.h"
#include "process/mark.h"
#include "process/tree-group.h"

namespace procwire {

// A start and its result. Owned by the loop that asked, by the spawner thread, then by the loop again.
struct SpawnRequest final : Mail {
  // Asked.
  std::string file;
  std::vector<std::string> argv;
  std::vector<std::string> envp;
  std::string cwd;
  int directory = -1;  // a descriptor of it, then `cwd` is only its name; the asker's own, open until it is answered
  bool terminal = false;
  bool pipeStdin = false;
  unsigned short rows = 24;
  unsigned short cols = 80;
  std::vector<int> passed;  // become 3, 4 and so on in the child; the asker's own, open until it is answered
  std::vector<ResourceLimit> limits;
  Marking marking;     // counts where there is a `mark`
  std::string record;  // of one that is to outlive the server, for the next one; empty for all others
  uint64_t mostOutputBytes = UINT64_MAX;
  std::vector<std::string> cgroups;  // files the child writes itself to
  bool wantsGroup = true;            // false for one that enters a cgroup of version 2 by `cgroups`
  std::shared_ptr<Mailbox> mailbox;
  // For the loop that asked.
  napi_ref onDone = nullptr;
  napi_ref onEvent = nullptr;

  // Answered. `err` is 0 when it runs; then every descriptor below is open (or -1 where there is none).
  int err = 0;
  const char* syscall = "";
  std::string path;
  pid_t pid = -1;
  uint64_t mark = 0;       // what its descendants are known by; 0: nothing. Asked, and dropped when it could not be set
  GroupLease lease = 0;    // the cgroup that holds it and its descendants; 0: none
  int groupErr = 0;        // why it has none where there could be one
  uint64_t startTime = 0;  // as in /proc, tells the leader from a later process with its number
  int exitFd = -1;         // readable once the leader has ended
  int stdinFd = -1;        // write end, pipes only
  int stdoutFd = -1;       // read end, or the terminal's master
  int stderrFd = -1;
  int slaveFd = -1;  // the terminal's other side, kept so that the master never hangs up while the leader lives
  int pts = -1;
  uint64_t pipeInodes[3] = {0, 0, 0};
  std::unique_ptr<Kept> kept;

  // Makes a child of it, or reports why there is none.
  void arrive(Loop& loop) override;
  // Kills what was started, and gives its descriptors back.
  void discard() override;
};

// Starts a program: `onDone` is told how that went, then `onEvent` what the program does.
void startProgram(Loop& loop, std::unique_ptr<SpawnRequest> request, napi_value onDone, napi_value onEvent);

// Hands the request over to a spawner thread, which returns it through its mailbox; or leaves it to the caller and
// returns the errno, on a machine that has no room for a single thread.
int spawnLater(std::unique_ptr<SpawnRequest>& request);

// The threads that start programs: only their children were started by the spawner.
std::vector<pid_t> spawnerThreads();

// Gives a killed child to the background reaper, for a loop that can no longer wait for it.
void reapLater(pid_t pid);

// For tests: behave as on a kernel without pidfds and close_range.
void useOldCallsOnly(bool only);

// For tests: behave as under an emulator that refuses vfork.
void useForkOnly(bool only);

}  // namespace procwire

#endif
