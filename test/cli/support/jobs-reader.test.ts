import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { type TestContext, test } from "node:test";
import { type JobsThreadRequest, startJobsThread } from "../../../src/cli/support/jobs-reader.ts";

/** A thread that records its queries. */
class FakeWorker extends EventEmitter {
  readonly requests: JobsThreadRequest[] = [];
  unref(): void {}
  postMessage(request: JobsThreadRequest): void {
    this.requests.push(request);
  }
}

/** Starts the reader, and returns the threads that it starts. */
function startReader({ mock }: TestContext) {
  const workers: FakeWorker[] = [];
  const Worker = function startWorker() {
    const worker = new FakeWorker();
    workers.push(worker);
    return worker;
  };
  mock.method(process, "getBuiltinModule", () => ({ Worker }));
  return { workers, query: startJobsThread({ directory: "/nowhere" }) };
}

test("a query after a crash of the thread waits for the new thread, also while the old one exits", async (context) => {
  const { workers, query } = startReader(context);
  const first = query({ type: "list" });
  workers[0]?.emit("error", new Error("out of memory"));
  assert.deepEqual(await first, { type: "refused", reason: "cannot read jobs: out of memory" });
  const second = query({ type: "list" });
  workers[0]?.emit("exit", 1);
  const id = workers[1]?.requests[0]?.id;
  workers[1]?.emit("message", { id, result: { type: "found", json: "[]" } });
  assert.deepEqual(await second, { type: "found", json: "[]" });
});
