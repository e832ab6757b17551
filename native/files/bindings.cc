#include "files/bindings.h"

#include "files/list-directory.h"
#include "files/tree-job.h"

namespace procwire {
namespace {

// Names of TreeFailure, in order.
constexpr const char* kTreeFailures[] = {"none", "unsupportedKind", "unsizedTooLarge"};

std::string pathArgument(const Argument& argument) {
  const Bytes bytes = argument.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data), bytes.length);
}

void start(const Call& call, std::unique_ptr<TreeJob> job, napi_value onDone) {
  job->onDone = ValueRef(call.env, onDone);
  treeJobs().submit(std::move(job), call.loop()->reserveMail());
}

// (source, destination, maxUnsizedBytes, onDone)
napi_value startCopyTree(napi_env env, napi_callback_info info) {
  Call call(env, info);
  auto job = std::make_unique<TreeJob>();
  job->source = pathArgument(call[0]);
  job->destination = pathArgument(call[1]);
  job->maxUnsizedBytes = static_cast<uint64_t>(call[2].number());
  start(call, std::move(job), call.argv[3]);
  return nullptr;
}

// (path, onDone)
napi_value startRemoveTree(napi_env env, napi_callback_info info) {
  Call call(env, info);
  auto job = std::make_unique<TreeJob>();
  job->source = pathArgument(call[0]);
  start(call, std::move(job), call.argv[1]);
  return nullptr;
}

// (path, maxEntries, onDone)
napi_value startListDirectory(napi_env env, napi_callback_info info) {
  Call call(env, info);
  auto job = std::make_unique<ListJob>();
  job->path = pathArgument(call[0]);
  job->maxEntries = static_cast<size_t>(call[1].number());
  job->onDone = call[2].ref();
  listJobs().submit(std::move(job), call.loop()->reserveMail());
  return nullptr;
}

}  // namespace

Bindings fileBindings(napi_env env) {
  return {
      binding("treeFailures", nameList(env, kTreeFailures)),
      binding("listedKinds", nameList(env, kListedKinds)),
      binding("linkBit", toValue(env, static_cast<int>(kLinkBit))),
      binding("copyTree", startCopyTree),
      binding("removeTree", startRemoveTree),
      binding("listDirectory", startListDirectory),
  };
}

}  // namespace procwire
