import { shellQuote } from "../../base/printable-text.ts";
import { CastWriter } from "../../client/recording/asciicast.ts";
import { DEFAULT_TERMINAL_SIZE, type ExecProcess } from "../../exec/exec-process.ts";
import { type GrowingFile, OutputFile } from "../../files/output-file.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import { CONNECT_HELP, CONNECT_OPTIONS } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS } from "../options/environment-options.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";
import { runOnBackend } from "./run.ts";

const HELP = `Usage: procwire record [options] FILE -- COMMAND [ARGUMENT...]

Run a command in a terminal, as \`procwire run --tty\` does, and record its output to FILE as an asciicast (version 3), for
\`procwire replay\` and asciinema. Input is not recorded.

  --input            record input too, except while the terminal does not echo
  --cwd DIR          working directory (default: current directory, or that of the server)
  --env NAME=VALUE   set a variable; may be repeated
  --inherit-env NAME pass a variable on although it looks like a secret; may be repeated
  --verbose          say which variables were left out as secrets
${CONNECT_HELP}
Without --connect the command runs on this machine. Its exit code is this program's.
`;

export const command: Command = defineCommand({
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
    await using output = await OutputFile.open(file);
    await using recording = await output.start();
    const recorder = new Recorder(recording, words);
    return await runOnBackend(
      words,
      { ...values, tty: true },
      {
        observe: (child) => recorder.follow(child),
        onTyped: values.input ? (chunk) => recorder.typed(chunk) : undefined,
      },
    );
  },
});

/** Writes the recording line by line, so that a crash loses no earlier output. */
class Recorder {
  readonly #began = performance.now();
  readonly #writer: CastWriter;
  readonly #size = localTerminalSize() ?? DEFAULT_TERMINAL_SIZE;

  constructor(recording: GrowingFile, words: string[]) {
    this.#writer = new CastWriter(
      { size: this.#size, startedAtMs: Date.now(), command: words.map(shellQuote).join(" ") },
      (line) => recording.write(line),
    );
  }

  typed(chunk: Uint8Array): void {
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
    return performance.now() - this.#began;
  }
}
