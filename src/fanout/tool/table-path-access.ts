import { lstat, readlink, realpath } from "node:fs/promises";
import path from "node:path";
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
  /** Directories of procwire's own files. */
  #ownDirectories: readonly string[];

  constructor(access: TableAccess, cwd: string, ownDirectories: readonly string[] = []) {
    this.#access = access;
    this.#cwd = cwd;
    this.#ownDirectories = ownDirectories;
  }

  /** Whether every path is granted without a check. */
  get isOpen(): boolean {
    return this.#access.type === "everything";
  }

  async checkInput(file: string): Promise<PathDecision> {
    const named = path.resolve(this.#cwd, file);
    if (this.#access.type === "everything") return { type: "granted", path: named };
    const real = await followLinks(named);
    for (const root of this.#access.readable) {
      if (isInside(await followLinks(root), real)) return { type: "granted", path: real };
    }
    const reason = `it lies outside of the workspace ${this.#access.readable.join(", ")}`;
    return { type: "refused", reason: `csv_path ${file} may not be read: ${reason}` };
  }

  async checkOutput(file: string): Promise<PathDecision> {
    const named = path.resolve(this.#cwd, file);
    if (this.#access.type === "everything") return { type: "granted", path: named };
    const real = await followLinks(named);
    const reason = (await this.denialReason(path.dirname(real))) ?? (await this.denialReason(real));
    if (reason === null) return { type: "granted", path: real };
    return { type: "refused", reason: `output_csv_path ${file} may not be written: ${reason}` };
  }

  /** Returns why a directory, given by its real path, may not be written, or null if it may. */
  async denialReason(directory: string): Promise<string | null> {
    if (this.#access.type === "everything") return null;
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
