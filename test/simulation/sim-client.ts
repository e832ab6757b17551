import type { Clock } from "../../src/async/clock.ts";
import { sleep } from "../../src/async/clock.ts";
import { ExecServerClient } from "../../src/client/exec-server-client.ts";
import type { RemoteProcess } from "../../src/client/process/remote-process.ts";
import type { EventLogLimits } from "../../src/exec/log/event-log.ts";
import { DISCONNECTED_PREFIX } from "../../src/protocol/errors.ts";
import { Ledger } from "./ledger.ts";
import { patternBytes } from "./pattern.ts";
import { type Program, randomProgram, toArgv } from "./program.ts";
import type { Random } from "./random.ts";
import type { SimClock } from "./sim-clock.ts";
import type { Mode, SimFaults } from "./sim-faults.ts";
import type { SimHost } from "./sim-host.ts";
import type { SimWire } from "./sim-wire.ts";
import type { Trace } from "./trace.ts";

export interface SimClientDeps {
  clock: SimClock;
  trace: Trace;
  wire: SimWire;
  faults: SimFaults;
  host: SimHost;
  mode: Mode;
  /** Without acknowledgements, output may be evicted and is reported as a gap. */
  hasAcks: boolean;
  logLimits: Partial<EventLogLimits>;
  /** Checks whether the server dropped every process whose end this client received. */
  checkForgotten: (() => void) | null;
  onFault: (text: string) => void;
}

/** Time for the heartbeat (25 s), all acknowledgements, and the retention of closed processes (30 s). */
const RELEASED_AFTER_MS = 300_000;

/** How a reader consumes the output of a process. */
type Pace = "at once" | "slowly" | "by asking";

/** A user of the client library that acts at random. */
export class SimClient {
  readonly name: string;
  readonly #deps: SimClientDeps;
  readonly #random: Random;
  readonly #scriptClock: Clock;
  readonly #started: { processId: string; program: Program }[] = [];
  #client: ExecServerClient | null = null;
  #isDown = false;
  #isClosed = false;
  #ids = 0;
  status = "connecting";
  readonly handles = new Map<string, string>();

  constructor(name: string, random: Random, deps: SimClientDeps) {
    this.name = name;
    this.#random = random;
    this.#deps = deps;
    this.#scriptClock = deps.clock.view("script");
  }

  /** Runs all planned actions, then disconnects. */
  async run(): Promise<void> {
    const random = this.#random;
    const client = await this.#connect(null);
    if (!client) return;
    const isImpatient = random.chance(0.15);
    const users = Array.from({ length: random.int(1, 4) }, (_, at) =>
      this.#use(client, `${this.name}-p${at}`, random.fork()),
    );
    if (isImpatient) {
      await this.#pause(random.scaled(10, 30_000));
      const { sessionId } = client;
      await this.#leave(client);
      await Promise.all(users);
      if (random.chance(0.6) && sessionId !== null) await this.#succeed(sessionId, random);
      return;
    }
    await Promise.all(users);
    if (random.chance(0.2)) await this.#pause(random.scaled(1000, 100_000));
    if (this.#deps.checkForgotten && random.chance(0.3) && !this.#isDown) {
      await this.#pause(RELEASED_AFTER_MS);
      if (!this.#isDown) this.#deps.checkForgotten();
    }
    await this.#leave(client);
  }

  /** Number of pending timers of the client library; 0 once it is closed. */
  get pendingTimers(): number {
    return this.#deps.clock.pending(this.name);
  }

  get #mayFail(): boolean {
    return this.#isClosed || (this.#isDown && this.#deps.mode === "harsh");
  }

  // ---- connections

  async #connect(resumeSessionId: string | null): Promise<ExecServerClient | null> {
    const { wire, faults, clock, logLimits, trace } = this.#deps;
    this.#isClosed = false;
    this.#isDown = false;
    for (let attempt = 0; attempt < 20; attempt++) {
      faults.looking(this.name);
      try {
        this.#client = await ExecServerClient.connect((signal) => wire.connect(this.name, signal), {
          clientName: this.name,
          clock: clock.view(this.name),
          newId: () => `${this.name}.${++this.#ids}`,
          logLimits,
          // The simulated programs belong to one session.
          reconnect: { newSession: false },
          ...(resumeSessionId !== null && { resumeSessionId, takeOver: true }),
          onConnectionState: (state) => {
            trace.add(`${this.name} is ${state.type}`);
            if (state.type === "connected") faults.connected(this.name);
            if (state.type === "reconnecting") faults.looking(this.name);
            if (state.type === "disconnected") this.#isDown = true;
          },
        });
        this.status = "connected";
        return this.#client;
      } catch (error) {
        trace.add(`${this.name} could not connect: ${String(error)}`);
        if (resumeSessionId !== null && String(error).includes("unknown session id")) return null;
      }
      await this.#pause(500);
    }
    if (this.#deps.mode === "survivable") this.#fault("could not connect at all");
    return null;
  }

  async #leave(client: ExecServerClient): Promise<void> {
    this.status = "leaving";
    this.#isClosed = true;
    this.#deps.trace.add(`${this.name} leaves`);
    await client.close();
  }

  /** Resumes the session with another client and reads all its processes to their end. */
  async #succeed(sessionId: string, random: Random): Promise<void> {
    await this.#pause(random.int(0, 15_000));
    this.status = "coming back";
    // The session may have expired, because its connection may have been lost earlier.
    const client = await this.#connect(sessionId);
    if (!client) return;
    await Promise.all(
      this.#started.map(async ({ processId, program }) => {
        const handle = await this.#attach(client, processId);
        if (!handle) return;
        const ledger = this.#ledger(processId, program, false);
        if (program.input !== "none") await this.#attempt(`closeStdin of ${processId}`, handle.closeStdin());
        await this.#readEvents(handle, ledger, false, null);
      }),
    );
    await this.#leave(client);
  }

  /** Returns null for a process that was not started, or was read to its end. */
  async #attach(client: ExecServerClient, processId: string): Promise<RemoteProcess | null> {
    try {
      return await client.backend.attach(processId);
    } catch (error) {
      const record = this.#deps.host.records.get(processId);
      const isOver = !record || record.child.isClosed;
      const isUnknown = isOver && String(error).includes("unknown process id");
      if (!isUnknown && !this.#isAllowed(error)) this.#fault(`attach ${processId} failed: ${String(error)}`);
      return null;
    }
  }

  // ---- one process

  async #use(client: ExecServerClient, processId: string, random: Random): Promise<void> {
    await this.#pause(random.chance(0.5) ? 0 : random.scaled(1, 30_000));
    if (this.#isClosed) return;
    const program = randomProgram(random);
    const pace: Pace = random.pick(["at once", "at once", "slowly", "by asking"]);
    const isLossless = pace !== "by asking" && random.chance(0.7);
    const isEnded = random.chance(0.25);
    this.handles.set(processId, "starting");
    this.#started.push({ processId, program });
    const handle = await this.#start(client, processId, program);
    if (!handle) {
      this.handles.set(processId, "over");
      return;
    }
    const ledger = this.#ledger(processId, program, isLossless && this.#deps.hasAcks);
    // Derived from the key, so that this choice does not change the behavior of earlier failed seeds.
    if (program.key % 12 === 0) {
      await this.#dispose(handle, random);
      return;
    }
    this.handles.set(processId, `reading ${pace}`);
    await Promise.all([
      pace === "by asking"
        ? this.#readByPolling(handle, ledger, random.fork())
        : this.#readEvents(handle, ledger, isLossless, pace === "slowly" ? random.fork() : null),
      program.input === "none" ? null : this.#feed(handle, program, isEnded, random.fork()),
      random.chance(0.3) ? this.#waitForExit(handle) : null,
      random.chance(0.3) ? this.#signal(handle, random.fork()) : null,
      isEnded ? this.#terminateLater(handle, random.fork()) : null,
    ]);
    this.handles.set(processId, "over");
  }

  async #start(client: ExecServerClient, processId: string, program: Program): Promise<RemoteProcess | null> {
    const starting = client.start({
      processId,
      argv: toArgv(program),
      cwd: "/",
      env: {},
      tty: false,
      pipeStdin: program.input !== "none",
    });
    if (!program.fails) return this.#attempt(`start ${processId}`, starting);
    try {
      await starting;
      this.#fault(`${processId} started, which it cannot`);
    } catch (error) {
      if (!String(error).includes("no such simulated file") && !this.#isAllowed(error))
        this.#fault(`start ${processId} failed otherwise: ${String(error)}`);
    }
    return null;
  }

  #ledger(processId: string, program: Program, isLossless: boolean): Ledger {
    const { host, hasAcks, onFault } = this.#deps;
    return new Ledger({
      processId,
      program,
      hasAcks,
      isLossless,
      host: () => host.records.get(processId) ?? null,
      mayFail: () => this.#mayFail,
      onFault,
    });
  }

  async #readEvents(
    handle: RemoteProcess,
    ledger: Ledger,
    isLossless: boolean,
    slowness: Random | null,
  ): Promise<void> {
    for await (const event of handle.events({ lossless: isLossless })) {
      ledger.take(event);
      if (slowness?.chance(0.1)) await this.#pause(slowness.scaled(1, 10_000));
    }
    if (!ledger.ended) this.#fault(`${handle.processId}: its events ended without an end`);
  }

  async #readByPolling(handle: RemoteProcess, ledger: Ledger, random: Random): Promise<void> {
    for (let afterSeq = 0; ; ) {
      const result = await handle.read({
        afterSeq,
        waitMs: random.scaled(1, 5000),
        ...(random.chance(0.5) && { maxBytes: random.scaled(1, 20_000) }),
      });
      if (ledger.takeRead(result, afterSeq)) return;
      if (result.nextSeq - 1 < afterSeq) this.#fault(`${handle.processId}: a read went back`);
      afterSeq = result.nextSeq - 1;
      if (random.chance(0.3)) await this.#pause(random.scaled(1, 5000));
    }
  }

  /** Writes a pattern, several chunks at a time, and checks the received input after the exit. */
  async #feed(handle: RemoteProcess, program: Program, mayDie: boolean, random: Random): Promise<void> {
    let writtenBytes = 0;
    const answers: Promise<boolean>[] = [];
    for (let writes = random.int(0, 12); writes > 0; writes--) {
      const bytes = random.scaled(1, random.chance(0.1) ? 60_000 : 4000);
      const chunk = patternBytes(program.key, writtenBytes, bytes);
      writtenBytes += bytes;
      answers.push(this.#isAccepted(`write to ${handle.processId}`, handle.write(chunk), mayDie));
      if (random.chance(0.5)) await this.#pause(random.scaled(1, 8000));
      if (random.chance(0.3)) await Promise.all(answers);
    }
    answers.push(this.#isAccepted(`closeStdin of ${handle.processId}`, handle.closeStdin(), mayDie));
    const isAllAccepted = (await Promise.all(answers)).every((isAccepted) => isAccepted);
    if (!isAllAccepted || mayDie) return;
    const result = await this.#attempt(`wait for ${handle.processId}`, handle.wait());
    const child = this.#deps.host.records.get(handle.processId)?.child;
    if (result && child && !this.#mayFail && child.readBytes !== writtenBytes)
      this.#fault(`${handle.processId} read ${child.readBytes} of ${writtenBytes} bytes it was given`);
  }

  async #isAccepted(what: string, writing: Promise<{ status: string }>, mayDie: boolean): Promise<boolean> {
    try {
      const { status } = await writing;
      if (status === "accepted") return true;
      // A missing process was terminated by request, or its retention expired.
      const isForgotten = status === "unknownProcess" && !this.#deps.hasAcks;
      if (!mayDie && !isForgotten && !this.#mayFail) this.#fault(`${what} was answered with ${status}`);
    } catch (error) {
      if (!mayDie && !this.#isAllowed(error)) this.#fault(`${what} was refused: ${String(error)}`);
    }
    return false;
  }

  async #waitForExit(handle: RemoteProcess): Promise<void> {
    const result = await this.#attempt(`wait for ${handle.processId}`, handle.wait());
    const exit = this.#deps.host.records.get(handle.processId)?.process.log.exit;
    if (result && result.exitCode !== exit?.exitCode)
      this.#fault(`wait for ${handle.processId} said ${result.exitCode}, not ${exit?.exitCode}`);
  }

  /** Sent at most once, even after a lost connection. */
  async #signal(handle: RemoteProcess, random: Random): Promise<void> {
    await this.#pause(random.scaled(1, 20_000));
    const seen = () =>
      this.#deps.host.records.get(handle.processId)?.child.signals.filter((signal) => signal === 10).length ?? 0;
    try {
      await handle.signal("SIGUSR1");
    } catch (error) {
      if (!String(error).includes(DISCONNECTED_PREFIX)) this.#fault(`signal was refused: ${String(error)}`);
    }
    if (seen() > 1) this.#fault(`${handle.processId} got a signal ${seen()} times`);
  }

  async #terminateLater(handle: RemoteProcess, random: Random): Promise<void> {
    await this.#pause(random.scaled(1, 40_000));
    const isForced = random.chance(0.5);
    const mode = isForced ? undefined : ({ type: "graceful", timeoutMs: random.scaled(1, 5000) } as const);
    const result = await this.#attempt(`terminate ${handle.processId}`, handle.terminate(mode));
    // No other client ends it, so a process terminated by request was running at that time.
    const reason = this.#deps.host.records.get(handle.processId)?.process.log.exit?.reason;
    if (result && !result.running && reason === "terminated")
      this.#fault(`terminate said that ${handle.processId} had ended, which it did by that`);
  }

  /** Disposes of the process object while it runs: the process ends, and the server retains nothing. */
  async #dispose(handle: RemoteProcess, random: Random): Promise<void> {
    this.handles.set(handle.processId, "disposing");
    await this.#pause(random.scaled(1, 20_000));
    await this.#attempt(`dispose of ${handle.processId}`, handle[Symbol.asyncDispose]());
    this.handles.set(handle.processId, "over");
  }

  // ---- helpers

  /** Returns null after an expected failure. */
  async #attempt<T>(what: string, attempt: Promise<T>): Promise<T | null> {
    try {
      return await attempt;
    } catch (error) {
      if (!this.#isAllowed(error)) this.#fault(`${what} failed: ${String(error)}`);
      return null;
    }
  }

  #isAllowed(error: unknown): boolean {
    const text = String(error);
    if (!this.#deps.hasAcks && text.includes("unknown process id")) return true;
    return this.#mayFail && text.includes(DISCONNECTED_PREFIX);
  }

  #pause(ms: number): Promise<void> {
    return sleep(this.#scriptClock, ms);
  }

  #fault(text: string): void {
    this.#deps.onFault(`${this.name}: ${text}`);
  }
}
