import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { errorMessage } from "../base/error-message.ts";
import { isWithin, type SandboxRoot } from "./bubblewrap.ts";
import { directoryIdentity } from "./pinned-roots.ts";
import { unenforceableSandbox } from "./sandbox-request.ts";
import { mayBeSecret, needsSecretDirectory, requireSecretDirectory, withLinkTarget } from "./secret-directory.ts";

interface RecordedIdentity {
  directory: string;
  identity: string | null;
  /** True once the directory was inside a writable root: a sandboxed command may have moved it with the file. */
  isExposed: boolean;
}

export interface MaskedPathsOptions {
  /** Further files of this server, which may be in the directory of a secret. */
  own?: readonly string[] | undefined;
  /** Directories that are hidden as well; they may be missing. */
  directories?: readonly string[];
  /** Rejects every sandbox, because the server offers none (`--no-sandbox`). */
  noSandbox?: boolean | undefined;
}

/** Host files that are hidden from all sandboxes: listening sockets, directories, tokens and other secrets. */
export class MaskedPaths {
  readonly #paths: readonly string[];
  readonly #directories: readonly string[];
  readonly #own: readonly string[];
  readonly #noSandbox: boolean;
  readonly #firstIdentities = new Map<string, RecordedIdentity>();

  constructor(paths: readonly string[], { own = [], directories = [], noSandbox = false }: MaskedPathsOptions = {}) {
    this.#paths = paths;
    this.#directories = directories;
    this.#own = [...paths, ...own];
    this.#noSandbox = noSandbox;
  }

  /**
   * Returns the masks for a sandbox with these roots. Throws if a secret cannot be hidden, or if a sandboxed command may
   * have moved a file.
   */
  roots(requested: readonly SandboxRoot[]): SandboxRoot[] {
    if (this.#noSandbox)
      throw unenforceableSandbox({ reason: "the server offers no sandboxes; start it without --no-sandbox" });
    const writable = requested.filter(({ access }) => access === "write");
    return [...this.#paths.flatMap(withLinkTarget), ...this.#directories].flatMap((path) => {
      const root = this.#maskOf(path, requested);
      const first =
        this.#firstIdentities.get(path) ??
        (root ? recordIdentity(mayBeSecret(path) ? root.path : dirname(root.path)) : null);
      if (first) {
        this.#firstIdentities.set(path, first);
        if (first.isExposed && directoryIdentity(first.directory) !== first.identity)
          throw unenforceableSandbox({
            reason: `directory \`${first.directory}\`, which contains a server file, was moved or replaced`,
          });
        first.isExposed ||= writable.some((root) => isWithin(first.directory, root.path));
      }
      return root ? [root] : [];
    });
  }

  /** Masks a secret with its directory, so that a file that replaces it is hidden as well. */
  #maskOf(path: string, requested: readonly SandboxRoot[]): SandboxRoot | null {
    const directories = [...this.#directories, ...this.#paths.filter((other) => !mayBeSecret(other))];
    if (this.#directories.includes(path) || !needsSecretDirectory(path, directories)) return maskFor(path);
    const directory = this.#secretDirectory(path);
    if (directory === null) return null;
    if (requested.some((root) => root.path === directory && root.access !== "deny"))
      throw unenforceableSandbox({
        reason: `root \`${directory}\` contains the secret file \`${path}\` of the server; move the file to another directory`,
      });
    return { path: directory, access: "deny", kind: "directory" };
  }

  #secretDirectory(path: string): string | null {
    try {
      return requireSecretDirectory(path, this.#own.flatMap(withLinkTarget));
    } catch (error) {
      throw unenforceableSandbox({ cause: error, reason: errorMessage(error) });
    }
  }
}

/** Returns the mask of a path; null if the path is missing or inaccessible. */
export function maskFor(path: string): SandboxRoot | null {
  try {
    const real = realpathSync(path);
    return { path: real, access: "deny", kind: statSync(real).isDirectory() ? "directory" : "file" };
  } catch {
    return null;
  }
}

function recordIdentity(directory: string): RecordedIdentity {
  return { directory, identity: directoryIdentity(directory), isExposed: false };
}
