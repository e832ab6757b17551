// A start, as the loop that asks for it sees it: handed to a spawner thread, and answered when that is done.
#include "core/loop.h"
#include "process/child.h"
#include "process/spawn.h"

namespace procwire {

void startProgram(Loop& loop, std::unique_ptr<SpawnRequest> request, napi_value onDone, napi_value onEvent) {
  napi_create_reference(loop.env(), onDone, 1, &request->onDone);
  napi_create_reference(loop.env(), onEvent, 1, &request->onEvent);
  request->mailbox = loop.expectMail();
  const int err = spawnLater(request);
  if (err == 0) return;
  // The request is still ours: answer it the way a failed start is answered.
  request->err = err;
  request->syscall = "pthread_create";
  request->path = request->file;
  const std::shared_ptr<Mailbox> mailbox = request->mailbox;
  mailbox->put(std::move(request));
}

void SpawnRequest::arrive(Loop& loop) {
  napi_env env = loop.env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value done;
  napi_get_reference_value(env, onDone, &done);
  napi_value argv[10];
  napi_create_int32(env, err, &argv[0]);
  napi_create_string_utf8(env, syscall, NAPI_AUTO_LENGTH, &argv[1]);
  napi_create_string_utf8(env, path.c_str(), path.size(), &argv[2]);
  size_t argc = 3;
  if (err == 0) {
    Child* child = new Child(&loop, *this, onEvent);
    loop.add(child);
    argv[argc++] = child->handle(env);
    napi_create_int32(env, pid, &argv[argc++]);
    napi_create_double(env, static_cast<double>(startTime), &argv[argc++]);
    napi_create_int32(env, pts, &argv[argc++]);
    napi_create_array(env, &argv[argc]);
    for (uint32_t at = 0, length = 0; at < 3; at++) {
      if (pipeInodes[at] == 0) continue;
      napi_value inode;
      napi_create_double(env, static_cast<double>(pipeInodes[at]), &inode);
      napi_set_element(env, argv[argc], length++, inode);
    }
    argc++;
    napi_create_double(env, static_cast<double>(mark), &argv[argc++]);
    napi_create_double(env, groupErr ? -groupErr : static_cast<double>(lease), &argv[argc++]);
    child->begin();
  } else {
    napi_delete_reference(env, onEvent);
  }
  napi_delete_reference(env, onDone);
  loop.call(done, argc, argv);
  napi_close_handle_scope(env, scope);
}

}  // namespace procwire
