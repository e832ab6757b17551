import assert from "node:assert/strict";
import { test } from "node:test";
import { Sequencer } from "../../src/client/process/sequencer.ts";
import type { ExecEvent, ExitStatus, ReadResult } from "../../src/exec/exec-process.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";

type Kind = "output" | "hole" | "exit" | "close";

const STATUS: ExitStatus = { exitCode: 42, signal: null, reason: "exited", sandboxDenied: false };
const CHUNK = new TextEncoder().encode("abc");

function put(log: EventLog, kind: Kind): void {
  if (kind === "output") log.append("pty", CHUNK);
  else if (kind === "hole") log.addGap(log.nextSeq, null);
  else if (kind === "exit") log.exited(STATUS);
  else log.closed();
}

function logOf(kinds: readonly Kind[], options: { isReplica?: boolean } = {}): EventLog {
  const log = new EventLog(options);
  for (const kind of kinds) put(log, kind);
  return log;
}

/** Every sequence with at most this many events before `closed`, including the exit. */
function* sequences(most: number, before: Kind[] = []): Generator<Kind[]> {
  const hasExited = before.includes("exit");
  if (hasExited) yield [...before, "close"];
  if (before.length === most) return;
  for (const kind of ["output", "hole", "exit"] as const)
    if (kind !== "exit" || !hasExited) yield* sequences(most, [...before, kind]);
}

function eventsOf(log: EventLog): ExecEvent[] {
  const cursor = log.cursor();
  const events: ExecEvent[] = [];
  for (let event = cursor.next(); event; event = cursor.next()) events.push(event);
  return events;
}

interface Case {
  kinds: Kind[];
  /** Number of events that the client had when its connection was lost. */
  had: number;
  /** Number of events that the server had emitted at the first read. */
  emitted: number;
  /** Number of notifications that arrive during a read or the request for the exit status. */
  notified: number;
  during: "read" | "exitStatus";
  pageBytes: number;
}

function* cases(): Generator<Case> {
  for (const kinds of sequences(5))
    for (let had = 0; had < kinds.length; had++)
      for (const emitted of [had, kinds.length - 1, kinds.length])
        for (let notified = 0; notified <= kinds.length - had; notified++)
          for (const during of ["read", "exitStatus"] as const)
            for (const pageBytes of [1, 4, 1_000_000]) yield { kinds, had, emitted, notified, during, pageBytes };
}

async function caughtUp({ kinds, had, emitted, notified, during, pageBytes }: Case): Promise<EventLog> {
  const client = logOf(kinds.slice(0, had), { isReplica: true });
  const whole = logOf(kinds);
  const notifications = eventsOf(whole).filter(
    (event) => (event.type === "gap" ? event.toSeq : event.type === "failed" ? 0 : event.seq) > had,
  );
  const notify = (count: number) => {
    for (const event of notifications.splice(0, count)) {
      if (event.type === "gap") sequencer.onGap(event);
      else if (event.type !== "failed") sequencer.onEvent(event);
    }
  };
  let server = logOf(kinds.slice(0, emitted));
  const read = ({ afterSeq, maxBytes }: { afterSeq: number; maxBytes?: number }): ReadResult => {
    const result = server.read({ afterSeq, maxBytes: maxBytes && pageBytes });
    server = whole;
    if (during === "read") notify(notified);
    return result;
  };
  const sequencer = new Sequencer(client, {
    read: async (params) => read(params),
    exitStatus: async () => {
      if (during === "exitStatus") notify(notified);
      return STATUS;
    },
    onAppended: () => undefined,
  });
  await sequencer.catchUp();
  while (notifications.length > 0) {
    notify(1);
    if (sequencer.isBehind) await sequencer.fill();
  }
  return client;
}

test("a resumed client receives all output, gaps and the exit in order", async () => {
  for (const one of cases()) {
    const client = await caughtUp(one);
    const events = eventsOf(client);
    const text = JSON.stringify(one);
    const count = (type: ExecEvent["type"]) => events.filter((event) => event.type === type).length;
    assert.equal(client.nextSeq - 1, one.kinds.length, text);
    assert.equal(count("exited"), 1, text);
    assert.equal(count("output"), one.kinds.filter((kind) => kind === "output").length, text);
    assert.equal(count("gap") > 0, one.kinds.includes("hole"), text);
    for (const event of events) if (event.type === "gap") assert.equal(event.bytes, null, text);
  }
});
