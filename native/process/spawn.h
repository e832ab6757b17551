// Starts processes on a few permanent threads, each of which performs one vfork at a time.
#ifndef PROCWIRE_PROCESS_SPAWN_H
#define PROCWIRE_PROCESS_SPAWN_H

#include <node_api.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/mailbox.h"
#include "core/napi.h"
#include "process/child-exec.h"
#include "process/process-cgroup.h"
#include "process/state-segment.h"
#include "process/tree-tag.h"

namespace procwire {

// Callbacks of a child. `src/native/addon.ts` declares their arguments.
struct ChildCallbacks {
  ValueRef onOutput;  // (stream, chunk)
  ValueRef onEvent;   // (event): exit, close, drain, unreadable, refused

  void reset() {
    onOutput.reset();
    onEvent.reset();
  }
};

// A start and its result. Owned by the requesting loop, then by a spawner thread, then by the loop again.
struct SpawnRequest final : Mail {
  // Request.
  std::string file;
  std::vector<std::string> argv;
  std::vector<std::string> envp;
  std::string cwd;
  int directory = -1;  // descriptor of the working directory, owned by the caller until `onDone`; -1: use `cwd`
  bool terminal = false;
  bool pipeStdin = false;
  unsigned short rows = 24;
  unsigned short cols = 80;
  std::vector<int> inheritedFds;  // become 3, 4 and so on in the child; owned by the caller until `onDone`
  std::vector<ResourceLimit> limits;
  TagLimits tagLimits;           // used if `treeTag` is set
  std::string persistentRecord;  // record of a persistent process, for the next server; empty for all others
  uint64_t maxOutputBytes = UINT64_MAX;
  std::vector<std::string> cgroups;  // cgroup.procs files that the child writes itself to
  bool landlock = false;             // enters a Landlock domain, if the kernel supports it
  bool wantsCgroup = true;           // false if `cgroups` has one of version 2: a process cannot be in two
  std::shared_ptr<Mailbox> mailbox;
  // Callbacks of the requesting loop.
  ValueRef onDone;
  ChildCallbacks callbacks;

  // Result. `err` is 0 if the process runs. Then the request owns the descriptors below; unused ones are -1.
  int err = 0;
  const char* syscall = "";
  std::string path;
  pid_t pid = -1;
  uint64_t treeTag = 0;    // identifies the process tree; 0: none. Reset if it could not be set
  CgroupLease lease = 0;   // cgroup of the process tree; 0: none
  int cgroupErr = 0;       // errno of a failed attempt to use a cgroup; 0: none failed
  uint64_t startTime = 0;  // as in /proc; only for a persistent process
  UniqueFd exitFd;         // readable once the leader has exited
  UniqueFd stdinFd;        // write end of the stdin pipe
  UniqueFd stdoutFd;       // read end of the stdout pipe, or pty master
  UniqueFd stderrFd;
  UniqueFd ptySlaveFd;  // pty slave, held so that the master does not hang up while the leader lives
  int pts = -1;
  uint64_t pipeInodes[3] = {0, 0, 0};
  std::unique_ptr<StateSegment> stateSegment;

  // Creates the Child, or reports the failure.
  void deliver(Loop& loop) override;
  // Kills the started process.
  void discard() override;
  // Closes the descriptors of a failed start.
  void closeFds();
};

// Starts a process. Calls `onDone` with the result, then the callbacks of the child.
void startProcess(Loop& loop, std::unique_ptr<SpawnRequest> request);

// Passes the request to a spawner thread, which returns it through its mailbox. Returns the errno and leaves the
// request to the caller if no thread can be created.
int enqueueSpawn(std::unique_ptr<SpawnRequest>& request);

// Returns the ids of the spawner threads. Their children are started processes, not orphans.
std::vector<pid_t> spawnerThreads();

// Passes a killed child to the background reaper, for a loop that can no longer wait for it.
void enqueueReap(pid_t pid);

// For tests: behaves as on a kernel without pidfds and close_range.
void forceLegacySyscalls(bool enabled);

// For tests: behaves as under an emulator that rejects vfork.
void forceFork(bool enabled);

}  // namespace procwire

#endif
