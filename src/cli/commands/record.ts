import { shellQuote } from "../../base/printable-text.ts";
import { CastWriter } from "../../client/recording/asciicast.ts";
import { DEFAULT_TERMINAL_SIZE, type ExecProcess } from "../../exec/exec-process.ts";
import { type GrowingFile, OutputFile } from "../../files/output-file.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import { CONNECT_HELP, CONNECT_OPTIONS } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS } from "../options/environment-options.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";
import { runOnBackend } from "./run.ts";

const HELP = `Usage: procwire record [OPTIONS] FILE -- COMMAND [ARGUMENT...]

Run a command in a terminal, as \`procwire run --tty\` does, and record its output to FILE as an asciicast (version 3), for
\`procwire replay\` and asciinema. Input is not recorded. Without a server the command runs on this host. Exits with the exit
code of the command.

Options:
  --input             record input too, except while the terminal does not echo
  --cwd DIR           working directory (default: current directory, or that of the server)
  --env NAME=VALUE    set a variable; repeatable
  --inherit-env NAME  pass on a variable that looks like a secret; repeatable
  --verbose           print the names of variables that were removed as secrets

${CONNECT_HELP}`;

export const command: Command = defineCommand({
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    ...ENVIRONMENT_OPTIONS,
    cwd: { type: "string" },
    env: { type: "string", multiple: true },
    input: { type: "boolean" },
  },

  async run(values, [file, ...argv]) {
    if (file === undefined || argv.length === 0) throw new UsageError("give a FILE, then -- and a command");
    await using output = await OutputFile.open(file);
    await using recording = await output.start();
    const recorder = new Recorder(recording, argv);
    return await runOnBackend(
      argv,
      { ...values, tty: true },
      {
        observe: (child) => recorder.follow(child),
        onTyped: values.input ? (chunk) => recorder.input(chunk) : undefined,
      },
    );
  },
});

/** Writes the recording line by line, so that a crash loses no earlier output. */
class Recorder {
  readonly #startedMs = performance.now();
  readonly #writer: CastWriter;
  readonly #size = localTerminalSize() ?? DEFAULT_TERMINAL_SIZE;

  constructor(recording: GrowingFile, argv: string[]) {
    this.#writer = new CastWriter(
      { size: this.#size, startedAtMs: Date.now(), command: argv.map(shellQuote).join(" ") },
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

  #now(): number {
    return performance.now() - this.#startedMs;
  }
}
