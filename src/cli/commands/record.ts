import { printableText, shellQuoteAll } from "../../base/text/printable-text.ts";
import type { AttachedProcess } from "../../client/process/attached-process.ts";
import { type CastVersion, CastWriter } from "../../client/recording/asciicast.ts";
import {
  DEFAULT_TERMINAL_SIZE,
  type ExecProcess,
  type TerminalScreen,
  type TerminalSize,
} from "../../exec/exec-process.ts";
import type { GrowingFile } from "../../files/output-file.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { CAST_OPTIONS, CAST_ROWS, openCastFile, parseCastFormat } from "../options/cast-format.ts";
import { CONNECT_OPTIONS, type ConnectValues } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS, ENVIRONMENT_ROWS } from "../options/environment-options.ts";
import { openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { processCandidates } from "../support/process-candidates.ts";
import { localTerminalSize, onSignals } from "../terminal/raw-terminal.ts";
import { runOnBackend } from "./run.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] FILE -- COMMAND [ARGUMENT...]", "[OPTIONS] --attach ID FILE"],
  details: `Runs the command as \`procwire run --tty\` does, and writes FILE as an asciicast, for
    \`procwire replay\` and asciinema. Input is recorded only with --input. Without a server the command runs on this host. Exits with the
    exit code of the command. With --attach, it records a running process as a viewer, from its current screen on, until the
    process exits or Ctrl-C.`,
  options: {
    Recording: [
      ["--attach ID", "record a running process instead of a command"],
      ...CAST_ROWS,
      ["--input", "record input too, except while the terminal does not echo"],
    ],
    Process: [
      ["--cwd DIR", "working directory (default: current directory, or that of the server)"],
      ["--env NAME=VALUE", "set a variable; repeatable"],
      ...ENVIRONMENT_ROWS,
    ],
  },
  connection: true,
  notes: HANDLE_HELP,
  examples: [
    ["procwire record build.cast -- make test", "record a command on this host"],
    ["procwire record --input session.cast -- bash", "record a shell with its input"],
    ["procwire record --connect ssh://build-host build.cast -- make", "record a command on another host"],
    ["procwire record --attach k3v7 session.cast", "record a running process from now on"],
  ],
};

export const command: Command = defineCommand("record", HELP, {
  options: {
    ...CONNECT_OPTIONS,
    ...ENVIRONMENT_OPTIONS,
    cwd: { type: "string" },
    env: { type: "string", multiple: true },
    input: { type: "boolean" },
    ...CAST_OPTIONS,
    attach: { type: "string" },
  },
  completeValue: async (option, { values }) =>
    option === "--attach" ? processCandidates({ values, positionals: [] }, { includesExited: false }) : [],

  async run(values, [file, ...argv]) {
    if (values.attach !== undefined) return await recordAttached(values, values.attach, [file, ...argv]);
    if (file === undefined || argv.length === 0) throw new UsageError("give a FILE, then -- and a command");
    const version = parseCastFormat(values.format);
    await using output = await openCastFile("record", file, values.force);
    await using stack = new AsyncDisposableStack();
    let recorder: Recorder | null = null;
    return await runOnBackend(
      argv,
      { ...values, tty: true },
      {
        // The file is created only now: a start that fails leaves no file.
        prepare: async () => {
          recorder = new Recorder(stack.use(await output.start()), { argv, version });
        },
        observe: async (child) => recorder?.follow(child),
        onTyped: values.input ? (chunk) => recorder?.input(chunk) : undefined,
      },
    );
  },
});

interface AttachValues extends ConnectValues {
  format?: string | undefined;
  force?: boolean | undefined;
  input?: boolean | undefined;
  cwd?: string | undefined;
  env?: string[] | undefined;
}

/** Records a running process as a viewer. */
async function recordAttached(values: AttachValues, id: string, [file, ...more]: (string | undefined)[]) {
  if (file === undefined || more.length > 0) throw new UsageError("give one FILE and no command with --attach");
  const unusable = (["input", "cwd", "env"] as const).find((name) => values[name] !== undefined);
  if (unusable) throw new UsageError(`--${unusable} applies to a command, not to --attach`);
  const version = parseCastFormat(values.format);
  await using output = await openCastFile("record", file, values.force);
  await using client = await openClient(values);
  const { handle, argv, running } = await findProcess(client, id);
  if (!running) throw new Error(`record ${id}: the process has exited; \`procwire export\` writes its retained output`);
  await using child = await client.attach(handle, { screen: true });
  await using recording = await output.start();
  const recorder = new Recorder(recording, { argv, version, size: child.size ?? DEFAULT_TERMINAL_SIZE });
  const interrupted = Promise.withResolvers<number>();
  const stopSignals = onSignals(["SIGINT", "SIGTERM"], () => interrupted.resolve(0));
  process.stderr.write(
    `procwire record: ${printableText(`recording ${handle} to ${file}`)}; Ctrl-C ends the recording\n`,
  );
  try {
    return await Promise.race([recorder.followAttached(child), interrupted.promise]);
  } finally {
    stopSignals();
  }
}

interface RecorderOptions {
  argv: readonly string[];
  version: CastVersion | undefined;
  /** Default: the size of the local terminal. */
  size?: TerminalSize;
}

/** Writes the recording line by line, so that a crash loses no earlier output. */
class Recorder {
  readonly #startedMs = performance.now();
  readonly #writer: CastWriter;
  readonly #size: TerminalSize;

  constructor(recording: GrowingFile, { argv, version, size }: RecorderOptions) {
    this.#size = size ?? localTerminalSize() ?? DEFAULT_TERMINAL_SIZE;
    this.#writer = new CastWriter(
      { version, size: this.#size, startedAtMs: Date.now(), command: shellQuoteAll(argv) },
      (line) => recording.write(line),
    );
  }

  input(chunk: Uint8Array): void {
    this.#writer.input(this.#now(), chunk);
  }

  async follow(child: ExecProcess): Promise<void> {
    const onResize = () => this.#writer.resized(this.#now(), localTerminalSize() ?? this.#size);
    process.stdout.on("resize", onResize);
    try {
      for await (const event of child.events({ lossless: true })) {
        if (event.type === "output") this.#writer.output(this.#now(), event.chunk);
        if (event.type === "exited") this.#writer.exited(this.#now(), event.exitCode);
      }
    } finally {
      process.stdout.off("resize", onResize);
    }
  }

  /** Records the screen of an attached process and all later output. Resolves to the exit code. */
  async followAttached(child: AttachedProcess): Promise<number> {
    const draw = ({ data, incomplete }: TerminalScreen) => {
      for (const chunk of [data, incomplete]) this.#writer.output(this.#now(), chunk);
    };
    child.onResized = () => this.#writer.resized(this.#now(), child.size ?? this.#size);
    let drawnSeq = child.screen?.seq ?? child.nextSeq - 1;
    if (child.screen) draw(child.screen);
    let exitCode: number | null = null;
    for await (const event of child.events({ afterSeq: drawnSeq, lossless: true })) {
      if (event.type === "output" && event.seq > drawnSeq) this.#writer.output(this.#now(), event.chunk);
      if (event.type === "gap" && child.screen) {
        // The rendered screen contains the effect of the missed output.
        const screen = await child.renderScreen().catch(() => null);
        if (screen) draw(screen);
        drawnSeq = screen?.seq ?? drawnSeq;
      }
      if (event.type === "exited") exitCode = event.exitCode;
      if (event.type === "failed") throw event.error;
    }
    if (exitCode === null) throw new Error("the process ended without an exit status");
    this.#writer.exited(this.#now(), exitCode);
    return exitCode;
  }

  #now(): number {
    return performance.now() - this.#startedMs;
  }
}
