import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { until } from "./until.ts";

/** A prompt with the number of the next command and the exit code of the last one. */
const PROMPT = String.raw`<\# $?> `;
const ROWS = 40;
const COLUMNS = 100;

/** A command that ran in a window. */
export interface ShellResult {
  /** Output, without the command line. */
  output: string;
  code: number;
}

/** A tmux server with shells in the windows of a real terminal. */
export class TmuxScreen implements Disposable {
  readonly #socket: string;
  readonly #directory: string;
  readonly #shell: readonly string[];

  /** Starts the window `main`. The shells read no start-up file and have only these variables. */
  constructor(socket: string, directory: string, env: Readonly<Record<string, string>>) {
    const variables = Object.entries({ ...env, PS1: PROMPT, TERM: "xterm-256color" });
    this.#socket = socket;
    this.#directory = directory;
    this.#shell = ["env", "-i", ...variables.map(([name, value]) => `${name}=${value}`), "bash", "--norc"];
    const size = ["-x", String(COLUMNS), "-y", String(ROWS)];
    this.#tmux("-f", "/dev/null", "new-session", "-d", "-s", "walk", "-n", "main", ...size, ...this.#start);
  }

  get #start(): string[] {
    return ["-c", this.#directory, ...this.#shell];
  }

  /** Opens another window with a shell. */
  async open(window: string): Promise<void> {
    this.#tmux("new-window", "-d", "-t", "walk", "-n", window, ...this.#start);
    await this.#prompt(window);
  }

  /** Pastes a command into a window, presses Enter, and waits for the next prompt. */
  async run(command: string, window = "main"): Promise<ShellResult> {
    const { number } = await this.#prompt(window);
    this.begin(command, window);
    const { code } = await this.#prompt(window, number + 1);
    const text = this.show(window);
    const start = text.indexOf("\n", text.lastIndexOf(`\n<${number} `) + 1);
    return { output: text.slice(start + 1, text.lastIndexOf(`\n<${number + 1} `) + 1), code };
  }

  /** Pastes a command that keeps running, and presses Enter. */
  begin(command: string, window = "main"): void {
    this.#tmux("set-buffer", command);
    // With -p, tmux pastes as a terminal does (bracketed paste), so that the shell takes several lines as one input.
    this.#tmux("paste-buffer", "-p", "-d", "-t", `walk:${window}`);
    this.press("Enter", window);
  }

  /** Presses a key, named as tmux does: `Enter`, `C-c`, `C-]`. */
  press(key: string, window = "main"): void {
    this.#tmux("send-keys", "-t", `walk:${window}`, key);
  }

  /** Waits until a window shows a pattern. Returns the match. */
  async see(pattern: RegExp, window = "main"): Promise<RegExpExecArray> {
    let found: RegExpExecArray | null = null;
    const seen = () => {
      found = pattern.exec(this.show(window));
      return found !== null;
    };
    await until(`${pattern} in window ${window}`, seen);
    assert.ok(found);
    return found;
  }

  /** Returns the content of a window with its scrollback. Lines that the terminal wrapped are joined. */
  show(window = "main"): string {
    return this.#tmux("capture-pane", "-p", "-J", "-S", "-", "-t", `walk:${window}`).replaceAll(/[ \t]+$/gm, "");
  }

  /** Waits until the cursor is behind a prompt, of command `number` if given. Returns the number and the exit code. */
  async #prompt(window: string, number?: number): Promise<{ number: number; code: number }> {
    let found: RegExpExecArray | null = null;
    await until(`a prompt in window ${window}`, () => {
      found = /<(\d+) (\d+)> $/.exec(this.#beforeCursor(window));
      return found !== null && (number === undefined || Number(found[1]) === number);
    });
    const [, next, code] = found ?? [];
    return { number: Number(next), code: Number(code) };
  }

  /** Returns the text of the cursor's line before the cursor. */
  #beforeCursor(window: string): string {
    const [column, row] = this.#tmux("display-message", "-p", "-t", `walk:${window}`, "#{cursor_x} #{cursor_y}").split(
      " ",
    );
    const lines = this.#tmux("capture-pane", "-p", "-t", `walk:${window}`).split("\n");
    return (lines[Number(row)] ?? "").padEnd(COLUMNS).slice(0, Number(column));
  }

  #tmux(...args: string[]): string {
    return execFileSync("tmux", ["-L", this.#socket, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  /** Returns the content of all windows. */
  showAll(): string {
    const windows = this.#tmux("list-windows", "-t", "walk", "-F", "#{window_name}").trim().split("\n");
    return windows.map((window) => `--- window ${window} ---\n${this.show(window).trimEnd()}\n`).join("\n");
  }

  [Symbol.dispose](): void {
    this.#tmux("kill-server");
  }
}
