import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ExecBackend } from "../../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { parseNetworkWords, resolveNetworkChoice } from "../../../src/tools/network/network-rules.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import { createUnifiedExec } from "../../../src/tools/unified-exec.ts";
import { call, textOf } from "../calls.ts";

const TIMEOUT = { timeout: 600_000 };

/** Starts processes without their sandbox, so that the proxy alone decides. */
function withoutSandbox(backend: ExecBackend): ExecBackend {
  return {
    start: (params) => backend.start({ ...params, sandbox: null, enforceManagedNetwork: false }),
    list: (options) => backend.list(options),
  };
}

async function withTools(
  words: string[],
  answer: (request: ApprovalRequest) => ApprovalAnswer,
  use: (run: (cmd: string) => ReturnType<typeof call>, asked: ApprovalRequest[]) => Promise<void>,
): Promise<void> {
  const network = resolveNetworkChoice(parseNetworkWords(words, "--network"), null, "--network");
  assert.ok(network.type === "managed");
  const asked: ApprovalRequest[] = [];
  const approval: ApprovalPolicy = {
    review: () => ({ type: "allow" }),
    ask: async (request) => {
      asked.push(request);
      return answer(request);
    },
  };
  await using backend = createLocalBackend();
  await using unified = createUnifiedExec({
    backend: withoutSandbox(backend),
    cwd: "/",
    approval,
    hostSandboxes: ["bubblewrap", "managed-network"],
    sandbox: { type: "bubblewrap", writableRoots: [], network },
  });
  await use((cmd) => call(unified, "exec_command", { cmd, login: false, yield_time_ms: 30_000 }), asked);
}

/** Fails the test at a question to the user. */
const noQuestion = ({ network }: ApprovalRequest): never => assert.fail(`asked about ${network?.host}`);

/** Prints the body of a request through the proxy of the process. */
const GET = (url: string) => `curl -sS -m 60 ${url} 2>&1; echo " [$?]"`;

describe("network rules in the proxy of a process", TIMEOUT, () => {
  test("block a host that no rule allows, and name it in the result", async () => {
    await withTools(["allow:good.test"], noQuestion, async (run) => {
      const output = await run(GET("http://other.test/"));
      assert.match(textOf(output), /"status":"blocked","host":"other\.test","reason":"not_allowed"/);
      assert.match(output.text, /network: blocked other\.test:80 \(not allowed\)\n/);
    });
  });

  test("block a denied host and another port without a question", async () => {
    await withTools(["ask", "deny:**.bad.test", "ports:80"], noQuestion, async (run) => {
      const output = await run(`${GET("http://a.bad.test/")}; ${GET("http://other.test:8080/")}`);
      assert.match(output.text, /network: blocked a\.bad\.test:80 \(denied\)\n/);
      assert.match(output.text, /network: blocked other\.test:8080 \(/);
    });
  });

  test("ask the user once for parallel requests, while the command waits", async () => {
    const refuse = (): ApprovalAnswer => ({ type: "refuse", reason: "rejected by user" });
    await withTools(["ask"], refuse, async (run, asked) => {
      const request = GET("http://other.test/");
      const output = await run(`(${request}) & (${request}) & (${request}) & wait`);
      assert.equal(asked.length, 1);
      assert.deepEqual(
        [asked[0]?.kind, asked[0]?.network?.host, asked[0]?.network?.port, asked[0]?.network?.protocol],
        ["network", "other.test", 80, "http"],
      );
      assert.equal(textOf(output).match(/"reason":"rejected by user"/g)?.length, 3);
      assert.match(output.text, /network: blocked other\.test:80 \(rejected by user\) 3 times\n/);
    });
  });

  test("ask about an allowed host of the ask list", async () => {
    const refuse = (): ApprovalAnswer => ({ type: "refuse", reason: "no" });
    await withTools(["allow:*", "ask:asked.test"], refuse, async (run, asked) => {
      const output = await run(GET("http://asked.test/"));
      assert.deepEqual(
        asked.map(({ network }) => network?.host),
        ["asked.test"],
      );
      assert.match(output.text, /network: blocked asked\.test:80 \(no\)\n/);
    });
  });

  test("block a private address although the user allows every host", async () => {
    await withTools(["ask"], noQuestion, async (run) => {
      const output = await run(GET("http://127.0.0.1:9/"));
      assert.match(output.text, /network: blocked 127\.0\.0\.1:9 \(local or private address\)\n/);
    });
  });
});
