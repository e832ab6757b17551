import type { Clock } from "../../src/async/clock.ts";
import type { HostBackend } from "../../src/exec/backend/host-backend.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { EventLog, type EventLogLimits } from "../../src/exec/log/event-log.ts";
import { LocalProcess } from "../../src/local/local-process.ts";
import type { ProcessTable } from "../../src/local/tree/process-table.ts";
import { TreeKiller } from "../../src/local/tree/tree-kill.ts";
import { internalError } from "../../src/protocol/errors.ts";
import type { HostServices } from "../../src/server/host-services.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { fromArgv } from "./program.ts";
import { Random } from "./random.ts";
import { SimChild } from "./sim-child.ts";
import type { SimClock } from "./sim-clock.ts";
import type { Trace } from "./trace.ts";

/** The actual behavior of a process on the host. */
export interface HostRecord {
  readonly child: SimChild;
  readonly process: LocalProcess;
  /** Whether it is the second process with this id, which may receive events of the first. */
  readonly isSecond: boolean;
  /** Bytes that the host read and logged. */
  producedBytes: number;
}

/** Contains only leaders, because simulated process groups have no other members. */
const EMPTY_TABLE: ProcessTable = {
  descendants: () => [],
  orphanPids: () => [],
  children: () => [],
  entry: () => null,
  tagOf: () => null,
  hasOpen: () => false,
  signal: () => false,
};

export interface SimHostOptions {
  clock: SimClock;
  trace: Trace;
  limits: Partial<EventLogLimits>;
  /** Without acknowledgements, a start resent after 30 s looks like a new one. */
  mayStartTwice: boolean;
  onFault: (text: string) => void;
}

/** A host with simulated programs below the real processes of a local backend. */
export class SimHost {
  /** All started processes by process id. Ids are never reused within a run. */
  readonly records = new Map<string, HostRecord>();
  readonly services: HostServices;
  readonly #options: SimHostOptions;
  readonly #serverClock: Clock;
  readonly #killer: TreeKiller;
  #pids = 100;
  #ids = 0;

  constructor(options: SimHostOptions) {
    this.#options = options;
    this.#serverClock = options.clock.view("server");
    this.#killer = new TreeKiller({ table: EMPTY_TABLE, clock: this.#serverClock, subreaper: true });
    const { files, http, environment } = new FakeHost();
    // Process names must be unique and identical in every run.
    const names = new Random(0);
    this.services = {
      backend: this.#backend(),
      files,
      http,
      environment,
      clock: this.#serverClock,
      newId: () => `session-${++this.#ids}`,
      randomBytes: (count) => Uint8Array.from({ length: count }, () => names.int(0, 255)),
      log: (level, message, fields) => {
        options.trace.add(`server ${level}: ${message}`);
        if (level === "error") options.onFault(`server: ${message} ${JSON.stringify(fields ?? {})}`);
      },
    };
  }

  #backend(): HostBackend {
    return {
      start: (params) => this.#start(params),
      degradedComponents: () => [],
      persistenceUnavailableReason: "this server runs without --supervised",
      shutdown: async () => {
        const open = [...this.records.values()].filter(({ child }) => !child.isClosed);
        await Promise.all(open.map(({ process }) => process.terminateWithReason("terminated")));
      },
    };
  }

  async #start(params: StartParams): Promise<LocalProcess> {
    const { clock, trace, limits, mayStartTwice, onFault } = this.#options;
    const { processId } = params;
    const program = fromArgv(params.argv);
    trace.add(`host starts ${processId}`);
    if (program.startMs > 0) await new Promise<void>((resolve) => clock.after(program.startMs, resolve));
    if (program.fails) throw internalError("no such simulated file");
    const isSecond = this.records.has(processId);
    if (isSecond && !mayStartTwice) onFault(`${processId} was started twice`);
    const process = new LocalProcess(params, null, {
      log: new EventLog({ clock: this.#serverClock, limits }),
      clock: this.#serverClock,
      killer: this.#killer,
      sandboxType: "none",
      droppedEnv: [],
      limitExceededBy: () => null,
      isDenial: () => false,
      onClose: () => trace.add(`host closed ${processId}`),
    });
    const { output, exit, close, drain, failed } = process.childEvents;
    const child = new SimChild({
      pid: ++this.#pids,
      program,
      pipeStdin: params.pipeStdin ?? false,
      clock,
      events: {
        output: (stream, chunk) => {
          record.producedBytes += chunk.length;
          output(stream, chunk);
        },
        exit: (raw) => {
          trace.add(`host saw ${processId} exit ${JSON.stringify(raw)}`);
          exit(raw);
        },
        close,
        drain,
        failed,
      },
      onWrongInput: (text) => onFault(`${processId}: ${text}`),
    });
    const record: HostRecord = { child, process, isSecond, producedBytes: 0 };
    this.records.set(processId, record);
    process.attach(child);
    return process;
  }
}
