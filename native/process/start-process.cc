// The loop's side of a start: passes the request to a spawner thread and delivers its result.
#include "core/loop.h"
#include "process/child.h"
#include "process/spawn.h"

namespace procwire {

void startProcess(Loop& loop, std::unique_ptr<SpawnRequest> request) {
  request->mailbox = loop.reserveMail();
  const int err = enqueueSpawn(request);
  if (err == 0) return;
  // The request was not taken: deliver it like any failed start.
  request->err = err;
  request->syscall = "pthread_create";
  request->path = request->file;
  const std::shared_ptr<Mailbox> mailbox = request->mailbox;
  mailbox->post(std::move(request));
}

// `src/native/addon.ts` declares the result as NativeSpawnResult.
void SpawnRequest::deliver(Loop& loop) {
  napi_env env = loop.env();
  HandleScope scope(env);
  ObjectBuilder result(env);
  if (err == 0) {
    Child* child = new Child(&loop, *this);
    loop.add(child);
    result.set("child", child->handle(env));
    result.set("pid", pid);
    result.set("pts", nonNegative(pts));
    ArrayBuilder pipes(env);
    for (const uint64_t inode : pipeInodes)
      if (inode != 0) pipes.push(inode);
    result.set("pipes", pipes.get());
    result.set("treeTag", nonZero(treeTag));
    result.set("cgroupLease", nonZero(lease));
    result.set("cgroupErrno", nonZero(cgroupErr));
    child->begin();
  } else {
    result.set("errno", err);
    result.set("syscall", syscall);
    result.set("path", std::string_view(path));
    callbacks.reset();
  }
  napi_value value = result.get();
  napi_value done = onDone.get();
  onDone.reset();
  loop.call(done, 1, &value);
}

}  // namespace procwire
