import { lstat, readlink, realpath } from "node:fs/promises";
import path from "node:path";
import { ApprovalGate, type ApprovalPolicy } from "../../tools/policy/approval.ts";
import { neverAsk } from "../../tools/policy/never-ask.ts";
import { PROTECTED_NAMES, START_UP_NAMES } from "../../tools/policy/protected-names.ts";
import type { SandboxMode } from "../../tools/policy/sandbox-mode.ts";

/** Local files that a model may name: the same that the sandbox grants to its commands. */
export type TableAccess =
  | { type: "everything" }
  | { type: "roots"; readable: readonly string[]; writable: readonly string[] };

/**
 * Returns the access that the sandbox of a run grants on this host. The sandbox of commands on a server does not
 * apply to local files: then only the working directory is granted.
 */
export function tableAccess(sandbox: SandboxMode, cwd: string, runsElsewhere: boolean): TableAccess {
  if (sandbox === "none" && !runsElsewhere) return { type: "everything" };
  return { type: "roots", readable: [cwd], writable: sandbox === "read-only" ? [] : [cwd] };
}

/** Decision about a path: its real path, or why it is denied. */
export type PathDecision = { type: "granted"; path: string } | { type: "refused"; reason: string };

/** Checks the paths that a model names. The tool itself runs outside of the sandbox, so it must check them first. */
export class TablePathPolicy {
  #access: TableAccess;
  #cwd: string;
  #gate: ApprovalGate;
  /** Directories outside of the roots whose use was approved. */
  #approvedDirectories = new Set<string>();
  /** Directories of procwire's own files. */
  #ownDirectories: readonly string[];

  constructor(
    access: TableAccess,
    cwd: string,
    approval: ApprovalPolicy = neverAsk(),
    ownDirectories: readonly string[] = [],
  ) {
    this.#access = access;
    this.#cwd = cwd;
    this.#ownDirectories = ownDirectories;
    this.#gate = new ApprovalGate(approval);
  }

  /** Whether every path is granted without a check. */
  get isOpen(): boolean {
    return this.#access.type === "everything";
  }

  async checkInput(file: string, signal: AbortSignal): Promise<PathDecision> {
    const named = path.resolve(this.#cwd, file);
    if (this.#access.type === "everything") return { type: "granted", path: named };
    const real = await followLinks(named);
    for (const root of this.#access.readable) {
      if (isInside(await followLinks(root), real)) return { type: "granted", path: real };
    }
    const reason = `it lies outside of the workspace ${this.#access.readable.join(", ")}`;
    const refusal = await this.#ask(`read ${real}`, signal);
    if (refusal === null) return { type: "granted", path: real };
    return { type: "refused", reason: `csv_path ${file} may not be read: ${reason}; ${refusal}` };
  }

  async checkOutput(file: string, signal: AbortSignal): Promise<PathDecision> {
    const named = path.resolve(this.#cwd, file);
    if (this.#access.type === "everything") return { type: "granted", path: named };
    const real = await followLinks(named);
    const reason = (await this.denialReason(path.dirname(real))) ?? (await this.denialReason(real));
    if (reason === null) return { type: "granted", path: real };
    const refusal = await this.#ask(`write ${real}`, signal);
    if (refusal !== null) {
      return { type: "refused", reason: `output_csv_path ${file} may not be written: ${reason}; ${refusal}` };
    }
    this.#approvedDirectories.add(path.dirname(real));
    return { type: "granted", path: real };
  }

  /** Returns why a directory, given by its real path, may not be written, or null if it may. */
  async denialReason(directory: string): Promise<string | null> {
    if (this.#access.type === "everything" || this.#approvedDirectories.has(directory)) return null;
    const { writable } = this.#access;
    if (writable.length === 0) return "this run may only read";
    for (const own of this.#ownDirectories) {
      if (isInside(await followLinks(own), directory)) return `${own} is protected`;
    }
    for (const root of writable) {
      const realRoot = await followLinks(root);
      if (!isInside(realRoot, directory)) continue;
      const name = path
        .relative(realRoot, directory)
        .split(path.sep)
        .find((part) => PROTECTED_NAMES.includes(part) || START_UP_NAMES.includes(part));
      return name === undefined ? null : `${name} is protected`;
    }
    return `it lies outside of the writable directories ${writable.join(", ")}`;
  }

  /** Asks the approval policy. Returns null if it allows the access, otherwise the reason. */
  async #ask(action: string, signal: AbortSignal): Promise<string | null> {
    const permission = await this.#gate.decide(
      {
        kind: "unsandboxed",
        cmd: `spawn_agents_on_csv: ${action}`,
        // No shell runs this, so command rules do not apply.
        argv: ["spawn_agents_on_csv", action],
        shell: "other",
        tty: false,
        commands: null,
        workdir: this.#cwd,
        sandbox: "none",
        sandboxWritable: true,
      },
      { signal },
    );
    return permission.type === "allow" ? null : permission.reason;
  }
}

function isInside(root: string, file: string): boolean {
  const relative = path.relative(root, file);
  return relative === "" || (relative !== ".." && !relative.startsWith(`..${path.sep}`));
}

/** Maximum number of symbolic links, as in the Linux kernel. */
const MAX_LINKS = 40;

/** Resolves all symbolic links in a path. The last components of the path need not exist. */
async function followLinks(file: string, links = 0): Promise<string> {
  try {
    return await realpath(file);
  } catch (error) {
    if (links >= MAX_LINKS) throw error;
    const found = await lstat(file).catch(() => null);
    if (found?.isSymbolicLink()) {
      return followLinks(path.resolve(path.dirname(file), await readlink(file)), links + 1);
    }
    const directory = path.dirname(file);
    return directory === file ? file : path.join(await followLinks(directory, links), path.basename(file));
  }
}
