import { closeSync, openSync, writeSync } from "node:fs";
import { visibleWord } from "../../base/printable-text.ts";
import { CastWriter } from "../../client/recording/asciicast.ts";
import { DEFAULT_TERMINAL_SIZE, type ExecProcess } from "../../exec/exec-process.ts";
import { type Command, commandOf, UsageError } from "../command.ts";
import { CONNECT_HELP, CONNECT_OPTIONS } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS } from "../options/environment-options.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";
import { runCommand } from "./run.ts";

const HELP = `Usage: procwire record [options] FILE -- COMMAND [ARGUMENT...]

Runs a command in a terminal like \`procwire run --tty\` and writes what it shows to FILE, as an asciicast (version 3) for
\`procwire replay\` and asciinema. What is typed is not in it, beyond what the command itself shows of it.

  --input            also what is typed, but for what is typed while the terminal does not echo it
  --cwd DIR          where it runs; default: here, or where the server runs
  --env NAME=VALUE   set a variable; may be repeated
  --inherit-env NAME pass a variable on although it looks like a secret; may be repeated
  --verbose          say which variables were left out as secrets
${CONNECT_HELP}
Without --connect the command runs on this machine. Its exit code is this program's.
`;

export const command: Command = commandOf({
  name: "record",
  summary: "run a command in a terminal and record what it shows",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    ...ENVIRONMENT_OPTIONS,
    cwd: { type: "string" },
    env: { type: "string", multiple: true },
    input: { type: "boolean" },
  },

  async run(values, positionals) {
    const [file, ...words] = positionals;
    if (file === undefined || words.length === 0) throw new UsageError("give a FILE, then -- and a command");
    const recording = openSync(file, "w");
    try {
      const recorder = new Recorder(recording, words);
      return await runCommand(
        words,
        { ...values, tty: true },
        {
          observe: (child) => recorder.follow(child),
          onTyped: values.input ? (chunk) => recorder.typed(chunk) : undefined,
        },
      );
    } finally {
      closeSync(recording);
    }
  },
});

/** Line by line: what was shown before a crash is on the disk. */
class Recorder {
  readonly #began = performance.now();
  readonly #writer: CastWriter;
  readonly #size = terminalSize() ?? DEFAULT_TERMINAL_SIZE;

  constructor(recording: number, words: string[]) {
    this.#writer = new CastWriter(
      { size: this.#size, startedAtMs: Date.now(), command: words.map(visibleWord).join(" ") },
      (line) => void writeSync(recording, line),
    );
  }

  typed(chunk: Uint8Array): void {
    this.#writer.input(this.#now(), chunk);
  }

  async follow(child: ExecProcess): Promise<void> {
    const onResize = () => this.#writer.resized(this.#now(), terminalSize() ?? this.#size);
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
    return performance.now() - this.#began;
  }
}
