import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { settledValue, waitCount } from "../../support/system/process-stats.ts";
import { repetitions } from "../../support/system/repetitions.ts";

test("a persistent process that exits during a write is reported as exited, 200 times", {
  timeout: 600_000,
  skip: NO_SUPERVISOR,
}, async () => {
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  for (let time = 0; time < repetitions(200); time++) {
    const processId = `p${time}`;
    const process = await client.start(persistentParams(processId, "read line; exit 5"));
    // Many concurrent writes, so that the server handles some of them at the moment of the exit.
    const writes = Array.from({ length: 300 }, () =>
      client.call("process/write", { processId, chunk: Buffer.from("x\n") }),
    );
    assert.equal((await process.wait()).exitCode, 5);
    await Promise.all(writes);
  }
});

test("the supervisor sleeps while a persistent process does not read more input than its pipe and its state segment hold", {
  timeout: 600_000,
  skip: NO_SUPERVISOR,
}, async () => {
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  const { supervisorPid } = server;
  const persistent = await client.start(persistentParams("p", "kill -STOP $$; exec wc -c"));
  const pid = persistent.pid ?? assert.fail();
  const written = persistent.write(Buffer.alloc(800_000));
  await settledValue(() => waitCount(supervisorPid), supervisorPid, 20);
  process.kill(pid, "SIGCONT");
  await written;
  await persistent.closeStdin();
  await persistent.wait();
  assert.equal(
    Buffer.from((await persistent.snapshot()).stdout)
      .toString()
      .trim(),
    "800000",
  );
});
