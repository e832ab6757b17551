import { collectOutput } from "../exec/collect-output.ts";
import type { ExecBackend, StartParams } from "../exec/exec-process.ts";
import type { SandboxChoice } from "./sandbox-attempt.ts";
import { protectedPaths } from "./sandbox-attempt.ts";

/** A host that cannot follow a link in this time is in trouble. */
const RESOLVE_TIMEOUT_MS = 10_000;

/**
 * A sandbox choice whose roots are free of links. A wall cannot be put on a link, and only the host of the processes
 * knows which paths have one: so it is asked, once, before the first command.
 */
export class RealRoots {
  readonly #backend: ExecBackend;
  readonly #choice: SandboxChoice;
  readonly #start: Pick<StartParams, "env" | "envPolicy">;
  readonly #newProcessId: () => string;
  #resolved: Promise<SandboxChoice> | null = null;

  constructor(
    backend: ExecBackend,
    choice: SandboxChoice,
    start: Pick<StartParams, "env" | "envPolicy">,
    newProcessId: () => string,
  ) {
    this.#backend = backend;
    this.#choice = choice;
    this.#start = start;
    this.#newProcessId = newProcessId;
  }

  /** Rejects when it cannot be learned; the next command then asks again. */
  resolve(): Promise<SandboxChoice> {
    this.#resolved ??= this.#resolve();
    this.#resolved.catch(() => {
      this.#resolved = null;
    });
    return this.#resolved;
  }

  async #resolve(): Promise<SandboxChoice> {
    const choice = this.#choice;
    if (choice.type === "none") return choice;
    const { writableRoots, deniedRoots = [] } = choice;
    const roots = await this.#follow([...writableRoots, ...deniedRoots]);
    const real = {
      ...choice,
      writableRoots: roots.slice(0, writableRoots.length),
      deniedRoots: roots.slice(writableRoots.length),
    };
    const kept = protectedPaths(real);
    const followed = await this.#follow(kept);
    const linked = kept.find((path, index) => followed[index] !== path);
    if (linked !== undefined)
      throw new Error(`\`${linked}\` is a symbolic link, which a sandbox cannot keep read-only`);
    return real;
  }

  async #follow(paths: readonly string[]): Promise<string[]> {
    if (paths.length === 0) return [];
    await using process = await this.#backend.start({
      processId: this.#newProcessId(),
      argv: ["readlink", "-mz", "--", ...paths],
      cwd: "/",
      ...this.#start,
      tty: false,
      mode: "prepared",
      timeoutMs: RESOLVE_TIMEOUT_MS,
    });
    const { exit, stdout, stderr } = await collectOutput(process, {});
    const followed = stdout.split("\0").slice(0, -1);
    if (exit.exitCode !== 0 || followed.length !== paths.length)
      throw new Error(`the links in the roots of the sandbox could not be followed: ${stderr.trim()}`);
    return followed;
  }
}
