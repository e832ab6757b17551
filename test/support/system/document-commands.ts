import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import type { ExecProcess } from "../../../src/exec/exec-process.ts";
import { collectOutput } from "../../../src/exec/run/collect-output.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { PROCWIRE, scratchDirectory } from "../servers/serve.ts";

const ROOT = join(import.meta.dirname, "../../..");

/** Returns the commands of the block after `<!-- run by: TEST -->` that contains `part`, one per entry. */
export function documentedCommands(document: string, part: string): string[] {
  const text = readFileSync(join(ROOT, document), "utf8");
  const blocks = [...text.matchAll(/^<!-- run by: [^\n]* -->\n+^```sh\n([\s\S]*?)^```$/gm)].map(
    ([, block = ""]) => block,
  );
  const block = blocks.find((one) => one.includes(part));
  assert.ok(block !== undefined, `${document} has no block with ${part} that a test is said to run`);
  return block
    .replaceAll("\\\n", " ")
    .split("\n")
    .map((line) => line.replace(/(^|\s+)#.*$/, "").trim())
    .filter((line) => line !== "");
}

/** Returns the block of the README that a newcomer pastes, without the last line break. */
export function quickStart(): string {
  const text = readFileSync(join(ROOT, "README.md"), "utf8");
  const [, block] = /^```sh\n(export PROCWIRE_CONNECT[\s\S]*?)\n```$/m.exec(text) ?? [];
  assert.ok(block !== undefined, "README.md has no quick start that begins with PROCWIRE_CONNECT");
  return block;
}

/** A terminal on which tests type the commands of a document unchanged. */
export class DocumentTerminal implements AsyncDisposable {
  readonly #scratch = scratchDirectory();
  readonly #backend = createLocalBackend();
  readonly #env: Record<string, string>;
  readonly directory = this.#scratch.path;
  readonly path: string;
  #count = 0;

  /** `programs` are shell scripts that replace programs of other hosts. */
  constructor({ env = {}, programs = {} }: { env?: Record<string, string>; programs?: Record<string, string> } = {}) {
    const bin = join(this.directory, "bin");
    mkdirSync(bin);
    for (const [name, script] of Object.entries(programs))
      writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const { PATH = process.env.PATH, ...more } = env;
    this.path = [bin, join(PROCWIRE, ".."), PATH].join(delimiter);
    this.#env = { PATH: this.path, HOME: this.directory, TERM: "xterm", LANG: "C.UTF-8", ...more };
  }

  /** Types a command and answers its prompts with keys. Returns the whole output and the exit code. */
  async type(command: string, ...dialogue: [shows: RegExp | string, keys: string][]): Promise<Typed> {
    const process = await this.#start(command);
    let afterSeq = 0;
    for (const [shows, keys] of dialogue) {
      ({ seq: afterSeq } = await waitFor(process, shows, { afterSeq, timeoutMs: 60_000 }));
      await process.write(new TextEncoder().encode(keys));
    }
    return this.#ended(process);
  }

  /** Types a command that keeps running; resolves at its first output. `interrupt()` ends it as a user does. */
  async begin(
    command: string,
    shows: RegExp | string,
    timeoutMs = 60_000,
  ): Promise<{ shown: string; interrupt(): Promise<Typed> }> {
    const process = await this.#start(command);
    const { text } = await waitFor(process, shows, { timeoutMs });
    return {
      shown: text,
      interrupt: async () => {
        await process.write(new Uint8Array([3]));
        return this.#ended(process);
      },
    };
  }

  /** Starts an interactive shell, in which a user pastes lines one after the other. */
  async shell(): Promise<DocumentShell> {
    const process = await this.#start("exec env PS1='<$?> ' bash --norc --noprofile -i");
    const { seq } = await waitFor(process, PROMPT, { timeoutMs: 60_000 });
    return new DocumentShell(process, seq);
  }

  #start(command: string) {
    return this.#backend.start({
      processId: `command-${++this.#count}`,
      argv: ["bash", "-c", command],
      cwd: this.directory,
      env: this.#env,
      tty: true,
      size: { rows: 24, cols: 200 },
    });
  }

  async #ended(process: ExecProcess): Promise<Typed> {
    const { stdout, exit } = await collectOutput(process);
    return { shown: Buffer.from(stdout).toString().replaceAll("\r", ""), code: exit.exitCode };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
    this.#scratch[Symbol.dispose]();
  }
}

/** All output up to a prompt of the interactive shell, which contains the exit code of the last command. */
const PROMPT = /^([\s\S]*)<(\d+)> $/;

/** An interactive bash on a terminal. */
export class DocumentShell {
  readonly #process: ExecProcess;
  #seq: number;

  constructor(process: ExecProcess, seq: number) {
    this.#process = process;
    this.#seq = seq;
  }

  /** Pastes text and presses Enter. Returns what the terminal shows up to the next prompt, and the exit code. */
  async paste(text: string, mode: "typed" | "bracketed" = "typed"): Promise<Typed> {
    const pasted = mode === "bracketed" ? `\x1b[200~${text}\x1b[201~` : text;
    await this.#process.write(new TextEncoder().encode(`${pasted}\r`));
    const match = await waitFor(this.#process, PROMPT, { afterSeq: this.#seq, timeoutMs: 60_000 });
    this.#seq = match.seq;
    const shown = stripVTControlCharacters(match.groups[0] ?? "").replaceAll("\r", "");
    return { shown, code: Number(match.groups[1]) };
  }
}

export interface Typed {
  shown: string;
  code: number | null;
}
