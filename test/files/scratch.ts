import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { uriFromPath } from "../../src/protocol/path-uri.ts";

/** A temporary directory that is removed at the end of the test. */
export class Scratch {
  readonly root: string;

  constructor(t: TestContext) {
    this.root = realpathSync(mkdtempSync(join(tmpdir(), "procwire-files-")));
    t.after(() => rmSync(this.root, { recursive: true, force: true, maxRetries: 10 }));
  }

  path(...names: string[]): string {
    return join(this.root, ...names);
  }

  uri(...names: string[]): string {
    return uriFromPath(this.path(...names));
  }

  file(name: string, content: string | Uint8Array = "", mode = 0o644): string {
    const path = this.path(name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content, { mode });
    return path;
  }

  directory(name: string): string {
    const path = this.path(name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  link(name: string, target: string): string {
    const path = this.path(name);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync(target, path);
    return path;
  }

  fifo(name: string): string {
    const path = this.path(name);
    mkdirSync(dirname(path), { recursive: true });
    execFileSync("sh", ["-c", 'mkfifo "$1"', "sh", path]);
    return path;
  }
}

/** The expected error of a rejected call. */
export const refusal = (code: number, message: string) => ({ name: "RequestError", code, message });
export const NOT_FOUND = refusal(-32004, "No such file or directory (os error 2)");
export const NOT_A_DIRECTORY = refusal(-32603, "Not a directory (os error 20)");
export const IS_A_DIRECTORY = refusal(-32603, "Is a directory (os error 21)");
export const FILE_EXISTS = refusal(-32603, "File exists (os error 17)");
export const LINK_LOOP = refusal(-32603, "Symbolic link loop (os error 40)");
