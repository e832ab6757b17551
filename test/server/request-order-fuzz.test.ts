import { flushEventLoop } from "../support/system/flush-event-loop.ts";
/** Many requests at once that depend on each other: of two sessions, for the same few processes, at hosts that make them wait. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryWire, startParams, WireClient } from "../support/servers/raw-connection.ts";

/** The next step: a request of one of the two sessions, or an event on the host. */
interface Step {
  act: Act;
  /** Index of the session. */
  by: number;
  /** Index of the process id. */
  on: number;
  /** Index of a known handle, or another choice. */
  choice: number;
}

const REQUESTS = {
  start: ({ id, choice }) => [
    "process/start",
    startParams(id, ["x"], { tty: true, ...(choice > 1 && { lifetime: "server" }) }),
  ],
  write: ({ id, text, choice }) => [
    "process/write",
    { processId: id, chunk: text, ...(choice === 0 && { writeId: "w" }) },
  ],
  resize: ({ id }) => ["process/resize", { processId: id, size: { rows: 2, cols: 3 } }],
  closeStdin: ({ id }) => ["process/closeStdin", { processId: id }],
  terminate: ({ id }) => ["process/terminate", { processId: id }],
  signal: ({ id }) => ["process/signal", { processId: id, signal: "interrupt" }],
  snapshot: ({ id }) => ["process/snapshot", { processId: id }],
  read: ({ id, choice }) => ["process/read", { processId: id, waitMs: choice * 1000 }],
  wait: ({ id, choice }) => [
    "process/wait",
    {
      processId: id,
      until: choice > 1 ? { type: "exit" } : { type: "bytes", count: choice },
      timeoutMs: 5000,
    },
  ],
  inputs: ({ id }) => ["process/inputs", { processId: id }],
  list: () => ["process/list", { allSessions: true }],
  attach: ({ id, handle, choice }) => [
    "process/attach",
    { handle, role: choice > 0 ? "driver" : "viewer", processId: id },
  ],
  detach: ({ id }) => ["process/detach", { processId: id }],
  kill: ({ handle, choice }) => ["process/kill", choice > 1 ? { handle } : { handle, signal: "interrupt" }],
  share: ({ handle }) => ["process/share", { handle, role: "viewer", ttlMs: 1000 }],
  exec: () => ["command/exec", { argv: ["x"], cwd: "/", env: {}, tty: true }],
  execWrite: ({ on, text }) => ["command/exec/write", { sessionId: `session-${on + 1}`, chunk: text }],
  execTerminate: ({ on }) => ["command/exec/terminate", { sessionId: `session-${on + 1}` }],
} satisfies Record<
  string,
  (given: { id: string; on: number; choice: number; handle: string; text: string }) => [string, Record<string, unknown>]
>;
type Request = keyof typeof REQUESTS;
const HAPPENINGS = ["holdStarts", "holdWrites", "letGo", "finish", "print", "laterOn", "turn", "cut"] as const;
type Act = Request | (typeof HAPPENINGS)[number];
const INPUT: Act[] = ["start", "write", "resize", "closeStdin", "detach", "attach"];

const isRequest = (act: Act): act is Request => Object.hasOwn(REQUESTS, act);

const step: fc.Arbitrary<Step> = fc.record({
  act: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom<Act>(...INPUT) },
    { weight: 2, arbitrary: fc.constantFrom<Act>(...(Object.keys(REQUESTS) as Request[])) },
    { weight: 1, arbitrary: fc.constantFrom<Act>(...HAPPENINGS) },
  ),
  by: fc.nat(1),
  on: fc.nat(2),
  choice: fc.nat(3),
});

class Run {
  readonly #host = new FakeHost();
  readonly #server = new ExecServer(this.#host);
  readonly #clients: WireClient[] = [];
  readonly #sent: { client: WireClient; id: number; what: string }[] = [];
  readonly #handles = ["none"];
  #gate = Promise.withResolvers<void>();
  #count = 100;

  async perform(steps: Step[]): Promise<void> {
    for (const by of [0, 1]) await this.#connect(by, null);
    for (const each of steps) {
      if (isRequest(each.act)) this.#request(each.act, each);
      else await this.#happen(each);
    }
    this.#letGo();
    await flushEventLoop();
    await this.#host.clock.advance(60_000);
    await flushEventLoop();
    for (const { client, id, what } of this.#sent)
      if (!client.isEnded)
        assert.ok(
          client.messages.some((message) => message.id === id),
          `${what} got no response`,
        );
    for (const { written } of this.#host.processes.values()) this.#checkOrder(written);
    assert.deepEqual(
      this.#host.logged.filter((line) => line.startsWith("error")),
      [],
    );
    await this.#server.close();
  }

  /** Checks that the input of each session arrives in the order in which it was sent. */
  #checkOrder(written: string[]): void {
    const latest = [0, 0];
    for (const text of written) {
      const [by, count] = text.split(" ").map(Number);
      if (by === undefined || count === undefined || Number.isNaN(count)) continue;
      assert.ok(count > (latest[by] ?? 0), written.join());
      latest[by] = count;
    }
  }

  async #connect(by: number, resumeSessionId: string | null): Promise<void> {
    const client = new WireClient(memoryWire((connection) => this.#server.accept(connection)));
    await client.handshake({
      extensions: ["attach", "started"],
      ...(resumeSessionId && { resumeSessionId }),
    });
    this.#clients[by] = client;
  }

  #request(act: Request, { by, on, choice }: Step): void {
    const client = this.#client(by);
    const id = this.#count++;
    for (const { result } of client.messages)
      if (typeof result?.handle === "string" && !this.#handles.includes(result.handle))
        this.#handles.push(result.handle);
    const handle = this.#handles.at(-1 - (choice % this.#handles.length)) ?? "none";
    const text = Buffer.from(`${by} ${id}`).toString("base64");
    const [method, params] = REQUESTS[act]({ id: `p${on}`, on, choice, handle, text });
    this.#sent.push({ client, id, what: `${method} ${JSON.stringify(params)} of session ${by}` });
    client.raw(JSON.stringify({ id, method, params }));
  }

  async #happen({ act, by, on, choice }: Step): Promise<void> {
    const named = [...this.#host.processes.values()].at(on);
    switch (act) {
      case "holdStarts":
        this.#host.startGate = this.#gate.promise;
        return;
      case "holdWrites":
        if (named) named.writeGate = this.#gate.promise;
        return;
      case "letGo":
        this.#letGo();
        return;
      case "finish":
        if (named && named.log.exit === null) named.finish(choice);
        return;
      case "print":
        if (named && named.log.exit === null) named.print("x".repeat(choice));
        return;
      case "laterOn":
        await this.#host.clock.advance(choice * 15_000);
        return;
      case "cut": {
        const client = this.#client(by);
        await client.close();
        await this.#connect(by, client.sessionId);
        return;
      }
      default:
        await flushEventLoop();
    }
  }

  #letGo(): void {
    this.#gate.resolve();
    this.#gate = Promise.withResolvers<void>();
    this.#host.startGate = null;
    for (const process of this.#host.processes.values()) process.writeGate = null;
  }

  #client(by: number): WireClient {
    const client = this.#clients[by];
    assert.ok(client);
    return client;
  }
}

describe("dependent requests in random order", () => {
  test("all get a response when nothing blocks them, and input keeps its order", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 40, size: "max" }), (steps) =>
        new Run().perform(steps),
      ),
      { numRuns: Number(process.env.PROCWIRE_FUZZ_RUNS ?? 100) },
    );
  });
});
